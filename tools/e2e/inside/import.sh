#!/bin/sh
# Imports images into a folder of containerd's, in process and mount namespaces of its own, so that all ends with it.
#   import.sh STORE SCRATCH IMAGE...
set -eu
store=$1 scratch=$2
shift 2
cat >"$scratch/config.toml" <<END
version = 2
root = "$store"
state = "$scratch/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$scratch/socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "$scratch/opt"
END
containerd --config "$scratch/config.toml" >"$scratch/log" 2>&1 &
server=$!
until ctr --address "$scratch/socket" version >/dev/null 2>&1; do
    kill -0 "$server" || { tail "$scratch/log"; exit 1; }
    sleep 0.1
done
for image; do
    ctr --address "$scratch/socket" --namespace k8s.io images import "$image"
done
# In order, so that its database is whole.
kill "$server"
wait "$server" || true
