"""A real kubelet of this machine with no containers: a container runtime that says it is ready and has nothing.

The kubelet serves /configz once its runtime is ready; the runtime here answers every call
of the CRI with an empty message but the two that are asked for words.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import yaml

from cluster import Cluster, binaries, build
from cluster.local_raddle import free_port

# What a kubelet sets for the whole machine when it starts (container_manager_linux.go). It is shown these values in a
# mount namespace of its own, finds them right and leaves the machine's alone.
_KERNEL = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
_RUN = """
set -eu
for name in vm/overcommit_memory kernel/panic kernel/panic_on_oops; do
    mount --bind "$1/$name" "/proc/sys/$name"
done
shift
exec "$@"
"""


def _text(field: int, text: str) -> bytes:
    return bytes([field << 3 | 2, len(text)]) + text.encode()


def _condition(kind: str) -> bytes:
    """RuntimeCondition{type, status: true} in RuntimeStatus.conditions."""
    body = _text(1, kind) + b"\x10\x01"
    return b"\x0a" + bytes([len(body)]) + body


_STATUS = _condition("RuntimeReady") + _condition("NetworkReady")
_ANSWERS = {
    "/runtime.v1.RuntimeService/Version": _text(1, "0.1.0") + _text(2, "none") + _text(3, "1") + _text(4, "v1"),
    "/runtime.v1.RuntimeService/Status": b"\x0a" + bytes([len(_STATUS)]) + _STATUS,
}


class _Nothing(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        answer = _ANSWERS.get(details.method, b"")
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)


@contextlib.contextmanager
def runtime(path: Path) -> Iterator[str]:
    """The endpoint of a runtime without containers."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((_Nothing(),))
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield f"unix://{path}"
    finally:
        server.stop(None).wait()


def program() -> Path | None:
    """The kubelet, where it has been built (`python -m cluster build --kubelet`)."""
    found = build.built(binaries.kubelet(), binaries.cache_folder())
    return None if found is None else found / "kubelet"


class Kubelet:
    """A kubelet that registers its node in a cluster; start it again with other settings as often as wanted."""

    def __init__(self, cluster: Cluster, folder: Path, endpoint: str, node: str) -> None:
        self.port = free_port()
        self.node = node
        self._cluster, self._folder, self._endpoint = cluster, folder, endpoint
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: Any) -> None:
        """Run it with these fields of its configuration, as a node that was set up again."""
        self.stop()
        shutil.rmtree(self._folder / "root", ignore_errors=True)
        config = self._folder / "config.yaml"
        config.write_text(yaml.safe_dump(self._config(settings)))
        binary = program()
        assert binary is not None
        for name, value in _KERNEL.items():
            (self._folder / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / "sys" / name).write_text(value)
        command = ["unshare", "--mount", "sh", "-c", _RUN, "sh", str(self._folder / "sys")]
        command += [str(binary), "--config", str(config), "--kubeconfig", str(self._cluster.kubeconfig)]
        command += ["--hostname-override", self.node, "--root-dir", str(self._folder / "root")]
        command += ["--cert-dir", str(self._folder / "pki")]
        with (self._folder / "kubelet.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def log(self) -> str:
        """The end of what it has logged."""
        return (self._folder / "kubelet.log").read_text(errors="replace")[-3000:]

    def _config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.port,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": self._endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": "2s",
            **settings,
        }


def possible() -> str:
    """Why no kubelet can run here; "" where one can."""
    if os.geteuid() != 0:
        return "a kubelet runs as root only"
    return "" if program() is not None else "no kubelet was built: python -m cluster build --kubelet"
