# The first process of a guest, run by busybox. The host's root is the guest's, read-only; the directory of
# this script is writable, gives the settings, and takes the status, the reason of a failure and the
# kernel's log.
RUN=${0%/*}
export RUN PATH="$RUN/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/ LC_ALL=C TERM=dumb PYTHONDONTWRITEBYTECODE=1
box=$RUN/bin/busybox

end() {
    $box dmesg > "$RUN/kernel-log"
    echo "$1" > "$RUN/status"
    $box poweroff -nf
}
fail() {
    echo "$1" >> "$RUN/failure"
    end 125
}

$box mount -t proc proc /proc
$box mount -t sysfs sys /sys
$box mount -t hostfs none "$RUN" -o "$RUN" || $box poweroff -nf
# The kernel has mounted /dev itself.
$box mkdir -p /dev/mqueue /dev/shm
$box mount -t mqueue mqueue /dev/mqueue
$box mount -t tmpfs shm /dev/shm
$box stty -opost < /dev/tty1
while read -r directory; do
    $box mount -t hostfs none "$directory" -o "$directory" || fail "can't make $directory writable"
done < "$RUN/writable"
while read -r module; do
    $box insmod "$module" || fail "can't load $module"
done < "$RUN/modules"

# What each process waits for, for a guest that the host stops.
(
    while $box sleep 3; do
        {
            echo "$($box cut -d ' ' -f 1 /proc/uptime) s after its start:"
            $box grep . /proc/[0-9]*/comm /proc/[0-9]*/wchan
        } > "$RUN/waits.new"
        $box mv "$RUN/waits.new" "$RUN/waits"
    done
) 2> /dev/null < /dev/null &

cd /
/bin/sh -e "$RUN/script" < /dev/null > /dev/tty1 2>&1
status=$?

cd /
end-cleaners
places=
while read -r device place rest; do
    case $device in
        /dev/ubd*) places="$place $places" ;;
    esac
done < /proc/mounts
for place in $places; do
    $box umount "$place" 2>> "$RUN/failure" || fail "can't unmount $place: the script left something running?"
done
end $status
