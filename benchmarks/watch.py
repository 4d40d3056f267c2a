"""What the agent takes to look at what runs: 100 governed containers, 5,000 real threads: `python -m watch`.

The threads are real, 50 in each of 100 processes of this machine; of them a tenth runs in every window, or all do. The
containers' cgroups are files that name these processes, and their pods are on a local API server, which the agent
follows. Its CPU time is that of the whole process, at the interval that it has by default.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import psutil

from cluster import Cluster
from cluster.components import free_port
from cluster.local_raddle import LocalRaddle
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.injection import plan_annotations
from report import BUDGET_HEADINGS, markdown_table, options, publish
from report import Budget as Line
from report import machine as this_machine

CONTAINERS, THREADS = 100, 50
INTERVAL_S, WINDOWS = 15.0, 5
NODE = "this-machine"
NAMESPACE = "models"

# One process forks all others, so that they share what memory they can. Each prints its number; they end with it.
PROGRAM = """
import ctypes, os, signal, sys, threading, time
processes, threads, busy = map(int, sys.argv[1:])
threading.stack_size(65536)
def work():
    while True:
        time.sleep(5)
def rest():
    threading.Event().wait()
for _ in range(processes):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        for number in range(threads - 1):
            threading.Thread(target=work if number < busy else rest, daemon=True).start()
        os.write(1, b"%d\\n" % os.getpid())
        rest()
signal.pause()
"""


@contextlib.contextmanager
def processes(busy: int) -> Iterator[list[int]]:
    """The processes' numbers; in each so many threads run in every window, and the main one never."""
    command = [sys.executable, "-c", PROGRAM, str(CONTAINERS), str(THREADS), str(busy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            yield [int(first.stdout.readline()) for _ in range(CONTAINERS)]
        finally:
            first.send_signal(signal.SIGKILL)


def write_cgroups(root: Path, numbers: list[int]) -> None:
    """Cgroups of version 2 as containerd makes them, a process in each."""
    (root / "cgroup.controllers").write_text("cpu cpuset\n")
    for place, number in enumerate(numbers):
        folder = root / "kubepods" / "burstable" / f"pod{_uid(place)}" / _box(place)
        folder.mkdir(parents=True)
        files = {
            "cgroup.procs": f"{number}\n",
            "cpu.max": "200000 100000\n",
            "cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 0\nnr_periods 9\nnr_throttled 1\nthrottled_usec 1\n",
            "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
            "cpuset.cpus.effective": f"0-{(os.cpu_count() or 1) - 1}\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)


def _uid(place: int) -> str:
    return f"00000000-0000-4000-8000-{place:012d}"


def _box(place: int) -> str:
    return f"{place:064x}"


def create_pods(cluster: Cluster) -> list[str]:
    """Governed pods of the node that run; the UIDs that the API server gave them."""
    cluster.client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _, values = plan_annotations.compose(
        None, Budget(quota_cpus=2.0, because="limits.cpu 2"), Policy(), governed_by="InferenceThreading/small"
    )
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    uids = []
    for place in range(CONTAINERS):
        pod = {
            "metadata": {
                "name": f"resnet-{place}",
                "annotations": {prefix + "server": text for prefix, text in values.items()},
            },
            "spec": {
                "nodeName": NODE,
                "tolerations": [{"operator": "Exists"}],
                "automountServiceAccountToken": False,
                "containers": [{"name": "server", "image": "x", "resources": {"limits": {"cpu": "2"}}}],
            },
        }
        made = cluster.client.post(path, pod)
        uids.append(str(made["metadata"]["uid"]))
        running = {"name": "server", "containerID": f"containerd://{_box(place)}", "state": {"running": {}}}
        container_status = {**running, "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
        status = {"status": {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [container_status]}}
        cluster.client.request(
            "PATCH", f"{path}/resnet-{place}/status", status, content_type="application/merge-patch+json"
        )
    return uids


def measure(raddle: LocalRaddle, uids: list[str], busy: int) -> tuple[float, float]:
    """(CPU time as % of a core, resident MiB) of an agent whose looks have settled."""
    with processes(busy) as numbers, tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_cgroups(root, numbers)
        for place, uid in enumerate(uids):
            (root / "kubepods/burstable" / f"pod{_uid(place)}").rename(root / "kubepods/burstable" / f"pod{uid}")
        port = free_port()
        flags = ["--watch", "Processes", "--cgroups", folder, "--watch-port", str(port)]
        agent = raddle.start_agent(NODE, options=[*flags, "--watch-interval", str(INTERVAL_S)])
        agent.wait(lambda: _threads(port) == CONTAINERS * THREADS, "a report of all threads", 10 * INTERVAL_S)
        running = psutil.Process(agent.pid)
        before, began_s = running.cpu_times(), time.monotonic()
        time.sleep(WINDOWS * INTERVAL_S)
        after, ended_s = running.cpu_times(), time.monotonic()
        resident = running.memory_info().rss / 2**20
        agent.stop()
    used_s = after.user + after.system - before.user - before.system
    return used_s / (ended_s - began_s) * 100, resident


def _threads(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/report", timeout=10) as answer:
            report = orjson.loads(answer.read())
    except OSError:
        return 0
    return sum(process["threads"] for one in report["containers"] for process in one.get("processes", []))


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__).parse_args()
    lines = []
    for busy, what in ((THREADS // 10, "a tenth runs in each window"), (THREADS - 1, "all run in each window")):
        with Cluster() as cluster, LocalRaddle(cluster, start=(), values={"agent": {"watch": "Processes"}}) as raddle:
            raddle.register_machine(NODE, "/", publish=False)
            share, resident = measure(raddle, create_pods(cluster), busy)
        print(f"{what}: {share:.2f} % of a core, {resident:.1f} MiB", file=sys.stderr, flush=True)
        lines.append(Line(what=f"agent, CPU, {what}", value=round(share, 3), allowed=1.0, unit="% of a core"))
        lines.append(Line(what=f"agent, resident memory, {what}", value=resident, allowed=50, unit="MiB"))
    text = (
        "### The agent's looks at what runs\n\n`python -m watch`, from benchmarks/. "
        f"{this_machine()}. {CONTAINERS} governed containers with {CONTAINERS * THREADS} threads, `agent.watch` "
        f"Processes, {WINDOWS} windows of {INTERVAL_S:.0f} s.\n\n"
        + markdown_table(BUDGET_HEADINGS, [line.cells() for line in lines])
    )
    publish("watch", text, write=arguments.write)


if __name__ == "__main__":
    main()
