systemctl is-active srv-data.mount
findmnt /srv/data
cmp /etc/passwd /srv/data/passwd
echo written after booting > /srv/data/written
echo mounted at boot
