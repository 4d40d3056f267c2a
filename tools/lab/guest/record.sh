#!/bin/busybox sh
# Brings the files that say what the machine is to the second serial line.
kept=" $(cat /kept) "
cd / || exit
mkdir -p /tmp/out
find sys/devices/system/cpu sys/devices/system/node proc/cpuinfo proc/sys/kernel/random/boot_id -type f | while read -r file; do
    case $kept in
    *" ${file##*/} "*)
        mkdir -p "/tmp/out/${file%/*}"
        cat "$file" >"/tmp/out/$file"
        ;;
    esac
done 2>/dev/null
stty -F /dev/ttyS1 raw -echo
tar -C /tmp/out -cf - sys proc | gzip >/dev/ttyS1
echo DONE
poweroff -f
