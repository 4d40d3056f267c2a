"""The load generator: open loop from due times, closed loop, and requests that nobody answers. No timing is asserted."""

import contextlib
import socket
import threading

import pytest

from load import generator


@pytest.fixture
def serve(tmp_path):
    """Start an echo server whose reply to each request waits for `gate(number)`; its address."""
    listeners = []

    def start(gate=lambda _: None):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listeners.append(listener)
        address = str(tmp_path / f"s{len(listeners)}")
        listener.bind(address)
        listener.listen()

        def answer(connection):
            # A caller that gave up hangs up in the middle.
            with connection, contextlib.suppress(OSError):
                while request := connection.recv(8):
                    gate(int.from_bytes(request, "little"))
                    connection.sendall(request)

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return address

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_at_a_fixed_rate_every_due_request_is_sent_once(serve):
    seen = []
    load = generator.offer(serve(seen.append), rate=200, duration_s=0.25)
    assert seen == list(range(50))
    assert (load.due, load.missed, len(load.latencies_s)) == (50, 0, 50)


def test_waiting_behind_a_slow_request_counts_as_latency(serve):
    held = threading.Event()
    last_asked = threading.Event()

    def gate(number):
        if number == 0:
            # Nothing is answered until all ten are long due.
            threading.Timer(0.15, held.set).start()
            held.wait()
        if number == 9:
            last_asked.set()

    load = generator.offer(serve(gate), rate=100, duration_s=0.1)
    assert last_asked.is_set()
    # Request n was due n x 10 ms after the first one, which took at least 150 ms.
    assert all(latency_s > 0.05 for latency_s in load.latencies_s)


def test_requests_that_nobody_answers_are_missed_and_keep_their_waiting_time(serve):
    never = threading.Event()
    address = serve(lambda _: never.wait(30))
    load = generator.offer(address, rate=50, duration_s=0.1, grace_s=0.1)
    never.set()
    assert (load.due, load.missed) == (5, 5)
    assert all(latency_s >= 0.1 for latency_s in load.latencies_s)


def test_a_closed_loop_has_one_request_at_a_time(serve):
    lock, now, most = threading.Lock(), [0], []

    def gate(_):
        with lock:
            now[0] += 1
            most.append(now[0])
        with lock:
            now[0] -= 1

    load = generator.offer(serve(gate), rate=None, duration_s=0.2)
    assert load.missed == 0
    assert load.due == len(most)
    assert max(most) == 1
