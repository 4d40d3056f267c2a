#!/bin/busybox sh
# The guest as a node: its network, control groups of version 2, containerd, the kubelet. What it says goes to the
# serial line; lines with "node:" are read on the other side.
files=/var/lib/raddle-e2e
export PATH=/bin:/usr/bin:/usr/sbin
busybox --install -s /bin
# Its variables: name address gateway modules
# shellcheck source=/dev/null
. "$files/node.env"

for module in ${modules:?}; do
    insmod "/lib/modules/$module.ko" || echo "node: module $module is not loaded"
done
echo "node: clock $(date +%s)"
ip link set lo up
ip address add "${address:?}/30" dev eth0
ip link set eth0 up
ip route add default via "${gateway:?}"
echo 1 >/proc/sys/net/ipv4/ip_forward
hostname "${name:?}"

# With controllers, no process may be but in the leaves.
mkdir -p /sys/fs/cgroup/system
echo $$ >/sys/fs/cgroup/system/cgroup.procs
for controller in cpuset cpu memory pids io hugetlb; do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done

echo "node: containerd starts"
containerd --config "$files/containerd.toml" >"$files/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.5; done
echo "node: kubelet starts"
# shellcheck disable=SC2093
exec kubelet --config "$files/kubelet.yaml" --kubeconfig "$files/kubeconfig" \
    --hostname-override "$name" --node-ip "$address" --root-dir /var/lib/kubelet 2>&1
