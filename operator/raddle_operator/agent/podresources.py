"""Which CPUs the kubelet gives to containers alone, asked over its PodResources socket.

The kubelet speaks gRPC there (k8s.io/kubelet/pkg/apis/podresources/v1, GA in Kubernetes 1.28). One call without
arguments and one field of its answer are all that is needed: h2 carries it, and no protobuf runtime is. grpcio would do
it in less code here, and weigh more than all else that an agent has in memory. h2 is imported by the first call, since
an agent that was not told to ask must not carry it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from raddle.cpus import cpuset

if TYPE_CHECKING:
    from h2.events import Event

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
METHOD: Final = "/v1.PodResourcesLister/GetAllocatableResources"
MAX_ANSWER_BYTES: Final = 4 << 20
_CHUNK_BYTES: Final = 1 << 16
# AllocatableResourcesResponse.cpu_ids; a repeated number comes packed (as bytes) or one by one.
_CPU_IDS: Final = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class PodResourcesError(ValueError):
    """The kubelet refused, or answered something that is not its protocol."""


def allocatable_cpus(path: Path = SOCKET, *, timeout_s: float = 5.0) -> int:
    """The CPUs that the CPU manager may give to containers alone; 0 where its policy is none.

    Raises OSError where nobody answers in time, PodResourcesError for a refusal or an answer of another kind.
    """
    message = _call(path, METHOD, time.monotonic() + timeout_s)
    try:
        return cpuset.of(list(_cpu_ids(message)))
    except (IndexError, ValueError) as error:
        raise PodResourcesError(f"{path}: no AllocatableResourcesResponse: {error}") from None


def _call(path: Path, method: str, deadline_s: float) -> bytes:
    """The answer's message to a call with an empty one."""
    from h2.config import H2Configuration  # noqa: PLC0415 (see the module)
    from h2.connection import H2Connection  # noqa: PLC0415
    from h2.exceptions import H2Error  # noqa: PLC0415

    connection = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "raddle-agent"),
    ]
    answer = _Answer(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        _wait(stream, deadline_s)
        stream.connect(str(path))
        connection.initiate_connection()
        number = connection.get_next_available_stream_id()
        connection.send_headers(number, headers)
        # A message on the wire: not compressed (1 byte), its length (4 bytes), itself.
        connection.send_data(number, bytes(5), end_stream=True)
        try:
            while not answer.complete:
                stream.sendall(connection.data_to_send())
                _wait(stream, deadline_s)
                received = stream.recv(_CHUNK_BYTES)
                if not received:
                    raise PodResourcesError(f"{path}: the connection was closed before the answer's end")
                for event in connection.receive_data(received):
                    answer.take(event)
                    length = getattr(event, "flow_controlled_length", 0)
                    if length:
                        connection.acknowledge_received_data(length, number)
        except H2Error as error:
            raise PodResourcesError(f"{path}: no HTTP/2: {error!r}") from None
    return answer.message()


def _wait(stream: socket.socket, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    stream.settimeout(left_s)


class _Answer:
    """What has come of an answer: data, then trailers with the status."""

    def __init__(self, path: Path) -> None:
        self.complete = False
        self._path = path
        self._data = bytearray()
        self._status, self._words = "", ""

    def take(self, event: Event) -> None:
        """Takes one event. Raises PodResourcesError for the end of a call that failed."""
        from h2 import events  # noqa: PLC0415

        if isinstance(event, (events.ResponseReceived, events.TrailersReceived)):
            for name, value in event.headers or ():
                if name == b"grpc-status":
                    self._status = value.decode("ascii", "replace")
                elif name == b"grpc-message":
                    self._words = unquote(value.decode("ascii", "replace"))[:200]
        elif isinstance(event, events.DataReceived):
            self._data += event.data or b""
            if len(self._data) > MAX_ANSWER_BYTES:
                raise PodResourcesError(f"{self._path}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
        elif isinstance(event, events.StreamEnded):
            self.complete = True
        elif isinstance(event, (events.StreamReset, events.ConnectionTerminated)):
            raise PodResourcesError(f"{self._path}: the call was ended, {event!r}")

    def message(self) -> bytes:
        if self._status != "0":
            raise PodResourcesError(f"{self._path}: gRPC status {self._status or 'missing'} {self._words}".rstrip())
        length = int.from_bytes(self._data[1:5], "big")
        if len(self._data) != 5 + length or self._data[0]:
            raise PodResourcesError(f"{self._path}: {len(self._data)} bytes are no message of {length} bytes")
        return bytes(self._data[5:])


def _cpu_ids(message: bytes) -> Iterator[int]:
    """The values of cpu_ids; the other fields are passed over. Raises IndexError or ValueError for a broken message."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            if field == _CPU_IDS:
                yield _cpu_id(value)
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        end = place + length
        if end > len(message):
            raise IndexError("it ends within a field")
        while field == _CPU_IDS and kind == _BYTES and place < end:
            value, place = _varint(message, place)
            yield _cpu_id(value)
        place = end


def _cpu_id(value: int) -> int:
    if value >= cpuset.MAX_CPUS:
        raise ValueError(f"CPU {value} is not below {cpuset.MAX_CPUS}")
    return value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number in groups of 7 bits, the lowest first, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number of more than 10 bytes")
