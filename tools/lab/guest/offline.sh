#!/bin/busybox sh
# Takes the CPUs of the kernel's argument raddle.offline=5,13 offline.
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
