#!/bin/busybox sh
# First process of every guest: mounts the disk at /root where there is one (nvme and ext4 are built into the kernel),
# brings the CPUs online, and goes on with /start.sh, which hands over by `exec` or powers off.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
if [ -e /dev/nvme0n1 ]; then
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
    # Linux rewrites its own code when the first group of a kind is made. That is done here, while one CPU runs: see
    # kernel_arguments in vm/qemu.py.
    echo "+cpuset +cpu +memory" >"$cgroups/cgroup.subtree_control"
    mkdir "$cgroups/limited"
    echo "50000 100000" >"$cgroups/limited/cpu.max"
fi
# The kernel's argument maxcpus=1 has left the others offline.
for file in /sys/devices/system/cpu/cpu*/online; do
    # A CPU that can't be taken offline has none.
    if [ -e "$file" ] && [ "$(cat "$file")" = 0 ]; then
        echo 1 >"$file"
    fi
done
read -r line </proc/cmdline
for word in $line; do
    case $word in
    raddle.offline=*)
        for cpu in $(echo "${word#*=}" | tr , ' '); do
            echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"
        done
        ;;
    esac
done
# shellcheck source=/dev/null
. /start.sh
