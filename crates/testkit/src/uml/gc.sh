#!/bin/sh
# Runs the cleaner on /dev/ubda, mounted at /mnt, over all segments, with no protection period: gc [SECONDS]
cat > /dev/shm/gc.conf <<X
protection_period 0
min_clean_segments 0
max_clean_segments 0
clean_check_interval 1
selection_policy timestamp
nsegments_per_clean 8
mc_nsegments_per_clean 8
cleaning_interval 0.1
mc_cleaning_interval 0.1
retry_interval 1
min_reclaimable_blocks 0
mc_min_reclaimable_blocks 0
log_priority info
X
nilfs_cleanerd -n -c /dev/shm/gc.conf /dev/ubda /mnt &
cleaner=$!
sleep "${1:-5}"
# A signal that comes while the cleaner is about to wait for a message may be lost.
while kill $cleaner 2> /dev/null; do
    sleep 0.2
done
wait $cleaner || true
