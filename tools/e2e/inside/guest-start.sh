#!/bin/busybox sh
# Brings the node's files with it, since the file system of the initramfs is gone then, and hands over.
cp -a /node/. /root/var/lib/raddle-e2e/
# shellcheck disable=SC2093
exec switch_root /root /bin/busybox sh /var/lib/raddle-e2e/guest-node.sh
