#!/bin/busybox sh
# Brings the job with it, since the file system of the initramfs is gone then, and hands over to Python.
for folder in job opt; do
    mount -t tmpfs $folder /root/$folder
    cp -a /$folder/. /root/$folder/
done
ifconfig lo up
hostname node
stty -F /dev/ttyS1 raw -echo
# shellcheck disable=SC2093
exec switch_root /root /python/bin/python3 -u /job/node.py
