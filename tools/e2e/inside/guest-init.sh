#!/bin/busybox sh
# First process of the guest: mounts the disk (nvme and ext4 are built into the kernel), brings the node's files with
# it, and hands over. The file system of the initramfs is gone then, so the files are copied.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t ext4 /dev/nvme0n1 /root || poweroff -f
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs tmp /root/tmp
mount -t tmpfs run /root/run
cgroups=/root/sys/fs/cgroup
mount -t cgroup2 cgroup $cgroups
# shellcheck source=tools/lab/guest/cpus.sh
. /cpus.sh
cp -a /node/. /root/var/lib/raddle-e2e/
# shellcheck disable=SC2093
exec switch_root /root /bin/busybox sh /var/lib/raddle-e2e/guest-node.sh
