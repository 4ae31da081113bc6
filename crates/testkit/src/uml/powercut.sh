#!/bin/sh
# Stops the machine at once, without a sync or an unmount: powercut [STATUS]
"$RUN/bin/busybox" dmesg > "$RUN/kernel-log"
echo "${1:-0}" > "$RUN/status"
exec "$RUN/bin/busybox" poweroff -nf
