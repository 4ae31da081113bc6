# The unit as its first lines say, for an image.
drystone build /srv/data.img --from /etc --free 50%
cp /usr/share/doc/drystone/srv-data.mount /etc/systemd/system/
systemd-analyze verify /etc/systemd/system/srv-data.mount 2>&1 | tee /tmp/said
[ ! -s /tmp/said ]
systemctl enable srv-data.mount
# When everything is up, it is looked at from inside.
cat > /etc/systemd/system/booted.service <<'UNIT'
[Unit]
After=multi-user.target srv-data.mount
[Service]
Type=oneshot
StandardOutput=append:/booted.txt
StandardError=append:/booted.txt
ExecStart=sh -eu /booted.sh
ExecStopPost=systemctl start --no-block poweroff.target
[Install]
WantedBy=graphical.target
UNIT
systemctl enable booted.service
