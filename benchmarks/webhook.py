"""What the webhook can do: the real server process under load, with the caches of a large cluster.

    python -m webhook            # from benchmarks/; --quick for one short repetition, --write for docs/benchmarks.md

The server is `raddle_operator.webhook` itself; only its caches are filled by hand, through the readers that the
informers use. The load comes from a Go program (webhook_client), like the API server's own client: HTTP/1.1 over TLS,
one connection per worker, no pipelining. Client and server share the machine's CPUs; the client's part is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

import injection
import report
from assembling import regular
from cluster import toolchain
from cluster.progress import Progress
from cluster.waiting import settled
from raddle import delivery, env
from raddle.cpus.topology import Kubelet, Machine
from raddle_operator.certificates import local_issue
from raddle_operator.injection.decide import Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.objects import nodetopology
from raddle_operator.objects.policy import PolicyObject, policy_from_object
from raddle_operator.webhook.process import Webhook, serve_until
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import MemorySources

NODES, SHAPES, UNBOUND, POLICIES = 5_000, 8, 10_000, 200
REPETITIONS, SECONDS = 5, 4.0
CLIENTS = (1, 8, 32)
NAMESPACE = "vision"
LOADS = {"pods of one ReplicaSet": "/mutate/pods", "pods, all different": "/mutate/pods", "bindings": "/mutate/binding"}
CLIENT = Path(__file__).parent / "webhook_client"


# ---- the cluster that the caches hold


def machine(shape: int) -> Machine:
    """One of eight makes of node: 8 to 64 cores, one or two NUMA nodes, two threads per core."""
    nodes = 1 if shape % 2 else 2
    made = regular(
        8 * (shape + 1),
        2,
        sockets=nodes,
        numa_nodes=nodes,
        l3_domains=nodes,
        architecture="x86_64",
        model=f"Benchmark {shape}",
        kubelet=Kubelet("none"),
    )
    return made._replace(numa_nodes=tuple(node._replace(memory_mib=65536) for node in made.numa_nodes))


def policies() -> Iterator[dict[str, Any]]:
    """200 policies: 20 in the namespace that is asked about, of which the last in order governs; the rest elsewhere."""
    for number in range(POLICIES):
        here = number < POLICIES // 10
        app = "resnet" if number == POLICIES // 10 - 1 else f"other-{number}"
        yield {
            "metadata": {
                "name": f"policy-{number:03}",
                "namespace": NAMESPACE if here else f"elsewhere-{number % 50}",
                "uid": f"uid-{number}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"podSelector": {"matchLabels": {"app": app}}, "containers": ["serve"]},
        }


def fill(memory: MemorySources) -> None:
    """Put the whole cluster into the caches. Each object is parsed again, so that it shares nothing with others."""
    for name in (NAMESPACE, *(f"elsewhere-{number}" for number in range(500))):
        memory.namespaces.put({"metadata": {"name": name, "labels": {env.INJECT_LABEL: "enabled", "team": name}}})
    for policy in policies():
        memory.policies.put(policy)
    specs = [orjson.dumps(nodetopology.to_spec(machine(shape))) for shape in range(SHAPES)]
    for number in range(NODES):
        spec = {**orjson.loads(specs[number % SHAPES]), "bootID": f"boot-{number}"}
        memory.topologies.put({"metadata": {"name": f"node-{number}"}, "spec": spec})
    name = f"raddle-shim-{delivery.content_hash()}"
    memory.shims.put({"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"raddle.dev/shim": "x"}}})
    annotations = orjson.dumps(injected_annotations())
    for number in range(UNBOUND):
        # 500 Deployments of 20 replicas, each with a plan of its own.
        text = annotations.replace(b"policy-019", b"policy-%03d" % (number // 20))
        metadata = {"name": f"resnet-{number}", "namespace": NAMESPACE, "uid": f"pod-{number}"}
        memory.unbound.put({"metadata": {**metadata, "annotations": orjson.loads(text)}})


def injected_annotations() -> dict[str, str]:
    """What the webhook itself puts on the benchmark's pod."""
    decision = decide_object(
        pod(),
        NAMESPACE,
        {env.INJECT_LABEL: "enabled"},
        Policies(map(read_policy, policies())),
        facts(),
        Settings(),
    )
    result: dict[str, str] = {}
    for operation in decision.operations:
        if operation["path"].startswith("/metadata/annotations/"):
            result[operation["path"].rpartition("annotations/")[2].replace("~1", "/")] = operation["value"]
    assert result
    return result


def read_policy(obj: dict[str, Any]) -> PolicyObject:
    """The policy as a value."""
    return policy_from_object({"kind": "InferenceThreading", **obj})


def facts() -> Facts:
    """What a webhook knows that has seen the nodes."""
    return Facts(smallest_cores=8)


def pod() -> dict[str, Any]:
    """A pod of about 6 kB."""
    return injection.pod()


def replicas() -> list[bytes]:
    """Reviews of 64 pods of one ReplicaSet: the API server has given each token volume a name of its own."""
    return [review(with_token(pod(), number), number, "pods", "") for number in range(64)]


def different_pods() -> list[bytes]:
    """Reviews of 4,000 pods with names of their own, as StatefulSets and Jobs make them; names and a value differ."""
    result = injection.different_pods(4_000)
    return [review(with_token(obj, number), number, "pods", "") for number, obj in enumerate(result)]


def with_token(obj: dict[str, Any], number: int) -> dict[str, Any]:
    """The pod with its own name for the token volume."""
    text = orjson.dumps(obj).replace(b"kube-api-access-x7k2p", b"kube-api-access-%05d" % number)
    result: dict[str, Any] = orjson.loads(text)
    return result


def binding_reviews() -> list[bytes]:
    """Reviews of the bindings of 4,000 of the pods to as many nodes."""
    result = []
    for number in range(4_000):
        metadata = {"name": f"resnet-{number}", "namespace": NAMESPACE, "uid": f"pod-{number}"}
        obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"kind": "Node", "name": f"node-{number}"},
        }
        result.append(review(obj, number, "pods", "binding"))
    return result


def review(obj: dict[str, Any], number: int, resource: str, subresource: str) -> bytes:
    """An AdmissionReview as the API server sends it."""
    kind = {"group": "", "version": "v1", "kind": obj["kind"]}
    address = {"group": "", "version": "v1", "resource": resource}
    request = {
        "uid": f"7d1c2f2e-6f3a-4f57-9d8c-{number:012}",
        "kind": kind,
        "resource": address,
        **({"subResource": subresource} if subresource else {}),
        "requestKind": kind,
        "requestResource": address,
        "name": obj["metadata"].get("name", ""),
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "5b0b6a0e-6f8b-4d8e-8a55-0d9f0f4cbb3e",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        },
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


# ---- the server process


def serve(folder: Path) -> None:
    """Run the server until SIGTERM; its port is written to folder/port once it is ready."""
    import uvloop

    async def main() -> None:
        memory = MemorySources.empty()
        fill(memory)
        settings = WebhookSettings(
            tls_dir=folder, host="127.0.0.1", port=0, health_port=None, drain_delay_s=0.0, decision_logs_per_s=20.0
        )
        webhook = Webhook(settings, memory.sources(), None)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

        async def tell() -> None:
            await webhook.ready.wait()
            (folder / "port.new").write_text(str(webhook.addresses["https"]))
            (folder / "port.new").rename(folder / "port")
            await stop.wait()

        await serve_until(stop, webhook, tell())

    uvloop.run(main())


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The server as a process: its URL, and the process."""
    command = [sys.executable, "-m", "webhook", "--serve", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=Path(__file__).parent, env=environment(), stdout=log, stderr=log)
    try:
        settled(lambda: (folder / "port").exists() or process.poll() is not None, True, 60)
        if not (folder / "port").exists():
            raise RuntimeError(f"the server did not start:\n{(folder / 'log').read_text()}")
        yield f"https://127.0.0.1:{(folder / 'port').read_text()}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def environment() -> dict[str, str]:
    """The environment with our source roots on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


# ---- measuring


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement: `server_us` is CPU time for one request, `server_cpus` and `client_cpus` are cores in use."""

    per_s: float
    p50_ms: float
    p99_ms: float
    server_us: float
    server_cpus: float
    client_cpus: float


FIELDS = tuple(field.name for field in dataclasses.fields(Run))


def build_client(folder: Path) -> Path:
    """The Go client, built."""
    go = toolchain.find_go((1, 21), Path.home() / ".cache" / "raddle" / "devcluster", Progress())
    program = folder / "client"
    subprocess.run([go, "build", "-o", program, "."], cwd=CLIENT, env=toolchain.environment(), check=True)
    return program


def measure(
    client: Path, folder: Path, url: str, load: str, clients: int, seconds: float, server: psutil.Process
) -> Run:
    """One run of the client. Raises RuntimeError if one answer was wrong."""
    before = server.cpu_times()
    command: list[str | Path] = [
        client, "-url", f"{url}{LOADS[load]}?timeout=2s", "-ca", folder / "ca.crt", "-bodies", folder / load,
        "-want", '"patch":', "-clients", str(clients), "-duration", f"{seconds}s",
    ]  # fmt: skip
    done = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    after = server.cpu_times()
    if done["failures"] or not done["requests"]:
        raise RuntimeError(f"{load}: {done['failures']} answers without a patch, {done['requests']} with one")
    used_s = after.user + after.system - before.user - before.system
    return Run(
        per_s=done["requests"] / done["seconds"],
        p50_ms=done["p50_ms"],
        p99_ms=done["p99_ms"],
        server_us=used_s / done["requests"] * 1e6,
        server_cpus=used_s / done["seconds"],
        client_cpus=done["cpu_seconds"] / done["seconds"],
    )


def main() -> int:
    """Measure and print. A budget that is missed is a figure to explain, not a failure."""
    parser = report.options(__doc__.partition("\n")[0])
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="one repetition of a second: shows that it works")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return 0
    repetitions, seconds = (1, 1.0) if arguments.quick else (REPETITIONS, SECONDS)
    with tempfile.TemporaryDirectory(prefix="raddle-bench-") as name:
        text = run(Path(name), repetitions, seconds)
    report.publish("webhook", text, write=arguments.write)
    return 0


def run(folder: Path, repetitions: int, seconds: float) -> str:
    """The section's text, and the budgets."""
    local_issue(folder, ["127.0.0.1"])
    client = build_client(folder)
    bodies = dict(zip(LOADS, (replicas(), different_pods(), binding_reviews()), strict=True))
    for load, reviews in bodies.items():
        (folder / load).write_bytes(b"\n".join(reviews))
    cells = [(load, clients) for load in LOADS for clients in CLIENTS]
    result: dict[tuple[str, int], list[Run]] = {cell: [] for cell in cells}
    with server(folder) as (url, process):
        idle_mib = process.memory_info().rss / 2**20
        for load in LOADS:
            measure(client, folder, url, load, 8, 1.0, process)  # warms up
        for _ in range(repetitions):
            for load, clients in cells:
                result[load, clients].append(measure(client, folder, url, load, clients, seconds, process))
        loaded_mib = process.memory_info().rss / 2**20
    budgets = []
    for load in list(LOADS)[:2]:
        busy, single = result[load, 32], result[load, 1]
        budgets += [
            report.Budget(
                what=f"{load}, 32 clients", value=middle(busy, "per_s"), allowed=4600, unit="requests/s", at_least=True
            ),
            report.Budget(what=f"{load}, 32 clients, p99", value=middle(busy, "p99_ms"), allowed=30, unit="ms"),
            report.Budget(what=f"{load}, 1 client, p50", value=middle(single, "p50_ms"), allowed=0.5, unit="ms"),
        ]
    budgets.append(report.Budget(what="memory after the load", value=loaded_mib, allowed=120, unit="MiB"))
    lines = [
        [load, str(clients), *(report.spread([getattr(run, field) for run in runs]) for field in FIELDS)]
        for (load, clients), runs in result.items()
    ]
    headings = (
        "load",
        "clients",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server µs a request",
        "server CPUs",
        "client CPUs",
    )
    sizes = {load: len(reviews[0]) / 1000 for load, reviews in bodies.items()}
    return f"""## Webhook (`make bench`)

{report.machine()}. Client and server share all CPUs with whatever else
ran (load average {os.getloadavg()[0]:.1f}).
Median of {repetitions} runs of {seconds:g} s, range in brackets; "server µs" is its CPU time for one request.
Bodies: {", ".join(f"{load} {size:.1f} kB" for load, size in sizes.items())}. Every answer holds a patch.
Caches: {NODES} topologies of {SHAPES} shapes, {UNBOUND} unbound injected pods, {POLICIES} policies;
resident memory {idle_mib:.0f} MiB when ready, {loaded_mib:.0f} MiB after the load.

{report.markdown_table(report.BUDGET_HEADINGS, [budget.cells() for budget in budgets])}
{report.markdown_table(headings, lines)}"""


def middle(runs: list[Run], field: str) -> float:
    """The median of one field."""
    return float(statistics.median(getattr(run, field) for run in runs))


if __name__ == "__main__":
    sys.exit(main())
