# A file goes into the image and comes back.
echo changed > motd
drystone cp motd disk.img:/etc/motd
[ "$(drystone cat disk.img:/etc/motd)" = changed ]
drystone mkfs empty.img --size 64M
drystone check empty.img
# The image is mounted by the command and by mount(8), and used by other programs.
mkdir mnt
drystone mount disk.img mnt
cmp motd mnt/etc/motd
cp -a /etc/passwd mnt/copied
drystone umount mnt
mount -t fuse.drystone disk.img mnt
cmp /etc/passwd mnt/copied
umount mnt
drystone check disk.img
# Without fusermount3, mounting as an ordinary user says what is missing.
chmod 777 . disk.img mnt
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $user drystone mount disk.img mnt 2> said; then exit 1; fi
cat said
grep -q 'fusermount3: not found' said
