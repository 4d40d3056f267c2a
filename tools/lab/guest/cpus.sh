#!/bin/busybox sh
# Brings the CPUs online that the kernel's argument maxcpus=1 has left, then takes those of raddle.offline=5,13 offline.
# Sourced by the first process of each guest; `cgroups` is where control groups are mounted, unset where they are not.

# Linux rewrites its own code when the first group of a kind is made. That is done here, while one CPU runs: see
# kernel_arguments in lab/qemu.py.
if [ -n "${cgroups:-}" ]; then
    echo "+cpuset +cpu +memory" >"$cgroups/cgroup.subtree_control"
    mkdir "$cgroups/limited"
    echo "50000 100000" >"$cgroups/limited/cpu.max"
fi
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
