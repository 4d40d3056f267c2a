"""A small cluster as Raddle's agent and annotations tell of it: what the Headlamp plugin is tested with and pictured by."""

from __future__ import annotations

from dataclasses import replace

import machines
from cluster import objects
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle.machine import sysfs
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.controller import running as controller_running
from raddle_operator.effective import planned
from raddle_operator.effective.compare import compared
from raddle_operator.effective.running import Summary
from raddle_operator.injection import plan_annotations
from raddle_operator.objects import nodereport, nodetopology, running
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Pool, Process, Session

NAMESPACE, GOVERNOR = "models", "InferenceThreading/rankers"
# Node -> its recorded machine.
MACHINES = {
    "four-caches": "1s2n4l3-8c16t",
    "two-sockets": "2s16c32t",
    "starting": "hybrid-6p8e-20t",
    "closed": "1s2c2t",
}
# The agent answers; there is none; it has no report yet; its port is closed, as with agent.watch None.
WATCHED, AGENTLESS, STARTING, CLOSED = MACHINES
KUBELET = Kubelet(cpu_manager_policy="static", reserved_cpus=0)
# Pod -> (node, its limit, labels, what it was planned with).
PODS = {
    "ranker-0": (WATCHED, 2.0, {"app": "ranker"}, Policy()),
    "ranker-1": (WATCHED, 2.0, {"app": "ranker"}, Policy()),
    "embedder-0": (WATCHED, 4.0, {"app": "embedder"}, Policy(objective="Throughput")),
    "far-0": (AGENTLESS, 4.0, {"app": "ranker"}, Policy()),
}


def machine(node):
    """The machine that a node is, by what its agent would publish."""
    found = sysfs.read_machine(str(machines.path(MACHINES[node])))
    return found._replace(kubelet=KUBELET, boot_id=f"recorded-{node}")


def topology(node):
    """A node's NodeCPUTopology."""
    return {
        "apiVersion": nodetopology.API_VERSION,
        "kind": nodetopology.KIND,
        "metadata": {"name": node},
        "spec": nodetopology.to_spec(machine(node)),
    }


def pod(name):
    """A governed pod as it is stored after its binding."""
    node, limit_cpus, labels, policy = PODS[name]
    _, values = plan_annotations.compose(
        *(machine(node), Budget(quota_cpus=limit_cpus, because=f"limits.cpu is {limit_cpus:g}"), policy),
        governed_by=GOVERNOR,
        node=node,
    )
    annotations = {prefix + "serve": value for prefix, value in values.items()}
    made = objects.pod(objects.container(cpu=f"{limit_cpus:g}"), name=name, namespace=NAMESPACE)
    made["metadata"]["labels"] = {**labels, env.INJECTED_LABEL: "true"}
    made["metadata"]["annotations"] = {**annotations, env.GOVERNED_BY: GOVERNOR}
    made["spec"]["nodeName"] = node
    return made


def report():
    """What the agent of WATCHED says; its pods have their names for UIDs."""
    obeys = Container(
        **_of("ranker-0", 2.0, "0-15"),
        used_cpus=1.61,
        throttled_share=0.002,
        throttled_cpus=0.001,
        waiting_share=0.004,
        processes=(
            Process(
                pid=1,
                command="python",
                threads=7,
                runtimes=("onnxruntime",),
                pools=(
                    Pool(name="python", threads=5, ran=1, used_cpus=0.86, delay_cpus=0.002, last_cpus={0: 1}),
                    Pool(name="intra", threads=2, ran=1, used_cpus=0.75, delay_cpus=0.002, last_cpus={1: 1}),
                ),
                sessions=(Session(runtime="onnxruntime", threads=2, source="plan", runs=812),),
                memory_numa_mib={0: 412},
            ),
        ),
    )
    sets_its_own = Container(
        **_of("ranker-1", 2.0, "0-15"),
        used_cpus=1.98,
        throttled_share=0.47,
        throttled_cpus=1.32,
        waiting_share=0.21,
        processes=(
            Process(
                pid=1,
                command="python",
                threads=21,
                runtimes=("onnxruntime",),
                pools=(
                    Pool(name="python", threads=6, ran=1, used_cpus=0.14, delay_cpus=0.01, last_cpus={2: 1}),
                    Pool(
                        name="intra",
                        threads=15,
                        ran=15,
                        used_cpus=1.84,
                        delay_cpus=0.4,
                        migrations_hz=212.0,
                        involuntary_hz=930.0,
                        last_cpus=dict.fromkeys(range(1, 16), 1),
                    ),
                ),
                sessions=(Session(runtime="onnxruntime", threads=16, source="code", runs=77),),
            ),
        ),
    )
    unseen = Container(
        **_of("embedder-0", 4.0, "4-11"),
        used_cpus=3.4,
        throttled_share=0.03,
        throttled_cpus=0.1,
        processes=(
            Process(
                pid=1,
                command="embed",
                threads=4,
                runtimes=("openmp",),
                pools=(Pool(name="embed", threads=4, ran=4, used_cpus=3.4, last_cpus={4: 1, 6: 1, 8: 1, 10: 1}),),
            ),
        ),
    )
    seen = NodeReport(
        node=WATCHED,
        level=Level.PROCESSES,
        at="2026-11-20T10:00:00Z",
        window_s=15.0,
        containers=(obeys, sets_its_own, unseen),
    )
    plans = {(name, "serve"): planned.read(pod(name))["serve"] for name in PODS}
    return compared(seen, plans, {}, machine(WATCHED))


def report_of(uids):
    """The report with the UIDs that the pods have in a cluster, as JSON."""
    found = report()
    known = tuple(replace(one, uid=uids[one.pod]) for one in found.containers)
    return nodereport.to_document(replace(found, containers=known))


def statuses():
    """What the agent writes into the node's `status.running`, and the controller into the policy's."""
    summary = Summary()
    told = [summary.take(report()) for _ in range(2)][-1]
    totals = controller_running.RunningTotals()
    totals.put(WATCHED, None, told)
    policy = totals.of(running.policy_key(GOVERNOR, NAMESPACE))
    return {"node": running.to_document(told), "policy": controller_running.document(policy)}


def _of(name, limit_cpus, cpuset):
    return {
        "namespace": NAMESPACE,
        "pod": name,
        "uid": name,
        "name": "serve",
        "limit_cpus": limit_cpus,
        "quota_cpus": limit_cpus,
        "cpuset": cpuset,
    }
