"""Virtual machines: Linux kernels under QEMU with any CPU and NUMA shape, for the machine lab and the virtual node.

QEMU emulates the CPUs, so a guest needs neither KVM nor rights, and no time taken on it means anything. A guest is
booted with an initramfs whose first process is guest/init.sh, and perhaps with a disk; `guest` has what runs inside.
"""
