#!/bin/busybox sh
# First process of a guest that runs the real thing: mounts the disk (nvme and ext4 are built into the kernel), brings
# the job with it, and hands over to Python.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t ext4 /dev/nvme0n1 /root || poweroff -f
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mount -t tmpfs tmp /root/tmp
mount -t tmpfs job /root/job
mount -t tmpfs opt /root/opt
cgroups=/root/sys/fs/cgroup
mount -t cgroup2 cgroup $cgroups
# shellcheck source=tools/lab/guest/cpus.sh
. /cpus.sh
cp -a /job/. /root/job/
cp -a /opt/. /root/opt/
ifconfig lo up
hostname node
stty -F /dev/ttyS1 raw -echo
# shellcheck disable=SC2093
exec switch_root /root /python/bin/python3 -u /job/node.py
