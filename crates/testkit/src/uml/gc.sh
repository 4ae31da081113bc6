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
# It goes on in the background, whatever its options say.
nilfs_cleanerd -c /dev/shm/gc.conf /dev/ubda /mnt > /dev/null || exit
sleep "${1:-5}"
end-cleaners
