# What scripts of the NILFS2 judge may call; $TOOLS is where its programs are.
populate() { python3 "$TOOLS/populate.py" /mnt "$@"; }
list() { python3 "$TOOLS/list.py" "$@"; }

# Prints checkpoints, segments and the tree below /mnt for `Nilfs2View`.
view_current() {
    echo "@checkpoints"
    lscp -a /dev/ubda
    echo "@segments"
    lssu -a -l -p 0 /dev/ubda
    list current /mnt
}

# The same, and the tree of each snapshot, or of as many as are asked for: the first ones and the last.
view() {
    view_current
    mkdir -p /dev/shm/snapshot
    for snapshot in $(lscp -s /dev/ubda | busybox awk -v max="${1:-1000000}" '
        NR > 1 { all[++count] = $1 }
        END { for (at = 1; at <= count; at++) if (at < max || at == count) print all[at] }'); do
        busybox mount -i -t nilfs2 -o "ro,cp=$snapshot" /dev/ubda /dev/shm/snapshot
        list "$snapshot" /dev/shm/snapshot
        busybox umount /dev/shm/snapshot
    done
}
