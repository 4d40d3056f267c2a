#!/bin/sh
# The first process of a node on this machine, in process, mount and network namespaces of its own: all of the node
# ends with it, and its mounts and interfaces go with it. Its folder is bound where containerd and the kubelet look.
#   node.sh FOLDER KUBELET NAME ADDRESS
# It waits for FOLDER/cable, which says that the network cable is in the namespace.
set -eu
folder=$1 kubelet=$2 name=$3 address=$4 gateway=$5

mount --make-rshared /
for place in /var/lib/containerd /var/lib/kubelet /var/lib/cni /var/lib/raddle-e2e /var/log/pods /var/log/containers; do
    mkdir -p "$folder/files$place"
done
# Folders that this machine may lack are made in a layer above it.
for place in lib log; do
    mkdir -p "$folder/over-$place" "$folder/work-$place"
    mount -t overlay overlay -o "lowerdir=/var/$place,upperdir=$folder/over-$place,workdir=$folder/work-$place" "/var/$place"
done
for place in /var/lib/containerd /var/lib/kubelet /var/lib/cni /var/lib/raddle-e2e /var/log/pods /var/log/containers; do
    mkdir -p "$place"
    mount --bind "$folder/files$place" "$place"
done
mount -t tmpfs run /run
mkdir -p /run/netns

ip link set lo up
until [ -e "$folder/cable" ]; do sleep 0.1; done
ip address add "$address/30" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo 1 > /proc/sys/net/ipv4/ip_forward

containerd --config /var/lib/raddle-e2e/containerd.toml > /var/lib/raddle-e2e/containerd.log 2>&1 &
until ctr version > /dev/null 2>&1; do sleep 0.2; done
for image in "$folder"/images/*.tar; do
    ctr -n k8s.io images import "$image" || ctr -n k8s.io images import "$image"
done
echo imported > "$folder/imported"
"$kubelet" --config /var/lib/raddle-e2e/kubelet.yaml --kubeconfig /var/lib/raddle-e2e/kubeconfig \
    --hostname-override "$name" --node-ip "$address" --root-dir /var/lib/kubelet &
wait
