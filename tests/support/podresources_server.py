"""A kubelet's PodResources socket: a real gRPC server (grpcio) whose one call answers as it is told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

CALL = "/v1.PodResourcesLister/GetAllocatableResources"


def varint(value):
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def packed(cpus):
    """`repeated int64 cpu_ids = 2`, as Go's protobuf writes it."""
    values = b"".join(map(varint, cpus))
    return varint(2 << 3 | 2) + varint(len(values)) + values if cpus else b""


def devices(size):
    """`repeated ContainerDevices devices = 1`, of so many bytes."""
    return varint(1 << 3 | 2) + varint(size) + bytes(size)


class Kubelet(grpc.GenericRpcHandler):
    """Answers the one call as it is told: `answer` is bytes, or a gRPC status to refuse with."""

    def __init__(self):
        self.answer = b""
        self.asked = []

    def service(self, details):
        self.asked.append(details.method)
        return grpc.unary_unary_rpc_method_handler(self._handle) if details.method == CALL else None

    def _handle(self, request, context):
        assert request == b""
        if isinstance(self.answer, grpc.StatusCode):
            context.abort(self.answer, "not here, sorry: 100 %")
        return self.answer


@contextlib.contextmanager
def serving(path: Path) -> Iterator[Kubelet]:
    """Serve at this path."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    handler = Kubelet()
    server.add_generic_rpc_handlers((handler,))
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield handler
    finally:
        server.stop(None).wait()
