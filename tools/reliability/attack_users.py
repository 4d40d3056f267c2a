"""What a user of one namespace can try with labels, annotations and policies of their own, and an agent's token."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any, Final

from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.namespaces import TOPOLOGIES, TestNamespace
from cluster.objects import governed_by, injected, policy, threads, topology
from cluster.waiting import wait
from raddle import env
from reliability.attackers import FORBIDDEN, UNPROCESSABLE, Caller, unharmed, user_of
from reliability.model import Check, Result, broken_unless
from reliability.world import CONFIGURATION_PATH, World, pod

RADDLE: Final = "/apis/raddle.dev/v1alpha1"
IMAGE: Final = "registry.example/app:1"
LIBRARY, EVIL_IMAGE = "/tmp/evil.so", "evil.test/image:1"
SECRET_THREADS, OWN_THREADS = 7, 2
NAMES_CODE: Final[tuple[Mapping[str, Any], ...]] = (
    {"onnxruntime": {"configEntries": {"session.custom_ops_library": LIBRARY}}},
    {"onnxruntime": {"configEntries": {"ep.dynamic.library": LIBRARY}}},
    {"onnxruntime": {"providerOptions": {"OpenVINOExecutionProvider": {"cache_dir": "/tmp"}}}},
    {"onnxruntime": {"providerOptions": {"EvilExecutionProvider": {"library": LIBRARY}}}},
    {"imageEnv": {"LD_PRELOAD": "/proc/self/fd/0\n"}},
    {"imageEnv": {"PATH": "/tmp"}},
    {"imageEnv": {"NODE_OPTIONS": "--require /tmp/evil.js"}},
    {"allocator": LIBRARY},
    {"shim": EVIL_IMAGE},
)
"""Specs of policies that would make a process load, or a pod run, what their author chose."""
SHIMS: Final = ("Auto", "ConfigMap", "ImageVolume", "InitContainer")
_numbers = itertools.count()


# --- what is another tenant's -----------------------------------------------------------------------------------------


def others(world: World, raddle: LocalRaddle) -> Result:
    """Read and write what is another tenant's, name it by labels, forge its values, select its pods."""

    def given(one: Mapping[str, Any]) -> tuple[str | None, str]:
        return one["metadata"].get("annotations", {}).get(env.THREADS_PREFIX + "serve"), governed_by(one)

    with (
        unharmed(raddle),
        world.namespace(raddle) as ours,
        world.namespace(raddle) as hostile,
        user_of(hostile) as mallory,
    ):
        ours.store(policy("secret-sauce", threads={"intraOp": SECRET_THREADS}))
        ours.governed("secret-sauce")
        ours.create(pod("app"))
        requests = list(_requests(ours))
        answered = [what for what in requests if mallory.request(*what).status != FORBIDDEN]
        named = [pod("p", labels={env.POLICY_LABEL: name}) for name in ("secret-sauce", f"{ours.name}.secret-sauce")]
        taken = [
            one for one in map(hostile.create, (_named(body) for body in named)) if injected(one) or "env" in str(one)
        ]
        hostile.store(policy("mine", priority=1000, threads={"intraOp": OWN_THREADS}))
        hostile.governed("mine")
        forged = [hostile.create(_named(body)) for body in _forged(hostile)]
        theirs = [one for one in forged if given(one) != (str(OWN_THREADS), "InferenceThreading/mine")]
        untouched = threads(ours.create(pod("later"))) == SECRET_THREADS
    figures = {
        "requests for another's objects": str(len(requests)),
        "answered": str(len(answered)),
        "pods that name or forge another's policy": str(len(named) + len(forged)),
        "with its values": str(len(taken) + len(theirs)),
    }
    return Result(
        figures,
        (
            *(f"{method} {path} is not forbidden" for method, path, *_ in answered),
            *(f"pod {one['metadata']['name']} has another tenant's values" for one in (*taken, *theirs)),
            *broken_unless(the_other_tenants_pods_are_as_before=untouched),
        ),
    )


def _requests(ours: TestNamespace) -> list[tuple[Any, ...]]:
    own = f"{RADDLE}/namespaces/{ours.name}/inferencethreadings"
    core = f"/api/v1/namespaces/{ours.name}"
    cluster_policies = f"{RADDLE}/clusterinferencethreadings"
    admin = {**policy("mine", tier="Admin"), "kind": "ClusterInferenceThreading"}
    reads = [own, f"{own}/secret-sauce", f"{RADDLE}/inferencethreadings", cluster_policies, TOPOLOGIES]
    reads += [f"{core}/{kind}" for kind in ("pods", "configmaps", "secrets", "events")]
    reads += ["/api/v1/nodes", "/api/v1/pods", f"/api/v1/namespaces/{NAMESPACE}/secrets", CONFIGURATION_PATH]
    return [
        *(("GET", path) for path in reads),
        ("DELETE", f"{own}/secret-sauce"),
        ("POST", own, policy("mine")),
        ("POST", cluster_policies, admin),
        ("POST", TOPOLOGIES, topology("mine")),
        ("POST", f"{core}/pods/app/binding", {"target": {"name": "any"}}),
    ]


def _forged(hostile: TestNamespace) -> list[dict[str, Any]]:
    claims = {env.GOVERNED_BY: "InferenceThreading/secret-sauce", env.THREADS_PREFIX + "serve": str(SECRET_THREADS)}
    labelled = pod("p", labels={env.INJECTED_LABEL: "true"})
    elsewhere = pod("p", annotations=claims)
    elsewhere["metadata"]["namespace"] = hostile.name
    return [pod("p", annotations=claims), labelled, elsewhere]


def _named(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["name"] = f"p{next(_numbers)}"
    return body


# --- what runs --------------------------------------------------------------------------------------------------------


def code(world: World, raddle: LocalRaddle) -> Result:
    """Name libraries, paths and images in policies, and in annotations and labels of pods; write a policy's status."""
    with unharmed(raddle), world.namespace(raddle) as hostile, user_of(hostile) as mallory:
        own = f"{RADDLE}/namespaces/{hostile.name}/inferencethreadings"
        answers = [
            mallory.request("POST", own, policy(f"evil-{number}", **spec)) for number, spec in enumerate(NAMES_CODE)
        ]
        accepted = [
            str(spec)
            for spec, answer in zip(NAMES_CODE, answers, strict=True)
            if answer.status != UNPROCESSABLE or "spec." not in answer.message
        ]
        strange: list[str] = []
        for shim in SHIMS:
            hostile.store(policy(shim.lower(), shim=shim, reports=True, podSelector={"matchLabels": {"shim": shim}}))
            wait(functools.partial(_governs, hostile, shim, shim.lower()), f"the policy with shim {shim} is in force")
            strange += [f"shim {shim}: {what}" for what in _strange(hostile.create(_evil_pod(shim)))]
        lie = mallory.merge(f"{own}/auto/status", {"status": {"injectedPods": 7}})
    figures = {
        "policies that name code": str(len(NAMES_CODE)),
        "refused with the field": str(len(NAMES_CODE) - len(accepted)),
        "pods with forged annotations": str(len(SHIMS)),
        "images, volumes or values from those": str(len(strange)),
    }
    return Result(
        figures,
        (
            *(f"a policy is accepted that says {spec}" for spec in accepted),
            *strange,
            *broken_unless(a_policys_status_is_forbidden=lie.status == FORBIDDEN),
        ),
    )


def _governs(space: TestNamespace, shim: str, name: str) -> bool:
    return governed_by(space.probe(_evil_pod(shim))) == f"InferenceThreading/{name}"


def _evil_pod(shim: str) -> dict[str, Any]:
    annotations = {
        "raddle.dev/shim-image": EVIL_IMAGE,
        "raddle.dev/shim": "InitContainer",
        env.SHIM_PREFIX + "serve": f"v=1;library={LIBRARY}",
        env.PLAN_PREFIX + "serve": f'{{"v":1,"image":"{EVIL_IMAGE}"}}',
    }
    return pod(f"evil-{shim.lower()}", annotations=annotations, labels={"raddle.dev/shim": "evil", "shim": shim})


def _strange(made: Mapping[str, Any]) -> list[str]:
    """What of a stored pod is neither its author's own nor Raddle's."""
    spec, found = made["spec"], []
    images = {one["image"] for one in [*spec["containers"], *spec.get("initContainers", [])]}
    if images != {IMAGE}:
        found.append(f"images {sorted(images)}")
    for volume in spec.get("volumes", []):
        name = volume.get("configMap", {}).get("name", "raddle-shim-")
        known = volume.keys() <= {"name", "configMap", "emptyDir"} and name.startswith("raddle-shim-")
        if not known and not volume["name"].startswith("kube-api-access-"):
            found.append(f"volume {volume}")
    # A key that Raddle does not know stays, and nobody reads it.
    ours = {
        key: text for key, text in made["metadata"]["annotations"].items() if key.startswith(env.CONTAINER_PREFIXES)
    }
    if not ours or "evil" in str(ours):
        found.append(f"annotations {ours}")
    return found


# --- pods that run ----------------------------------------------------------------------------------------------------

KEPT: Final = "is written by Raddle when the pod is created and stays as it is"
MANY_KEPT: Final = "annotations of a pod that has more than 1000 stay as they are"


def running_pods(world: World, raddle: LocalRaddle) -> Result:
    """Change, add and remove Raddle's annotations and label of a pod, by the pod and its status; crowd them first."""
    changes: list[Mapping[str, Any]] = [
        {"annotations": {key: value}}
        for key, value in (
            (env.THREADS_PREFIX + "serve", "999"),
            (env.THREADS_PREFIX + "serve", None),
            (env.SHIM_PREFIX + "serve", "v=1;intra=999"),
            (env.GOVERNED_BY, "InferenceThreading/other"),
            ("raddle.dev/anything", ""),
        )
    ]
    changes += [{"annotations": None}]
    with unharmed(raddle), world.namespace(raddle) as hostile, user_of(hostile) as mallory:
        hostile.store(policy())
        hostile.governed()
        gates = [{"name": "test/wait"}]
        before = hostile.create(pod("app", schedulingGates=gates))
        many = {f"k{number}": "" for number in range(1500)}
        crowded = hostile.create(pod("crowded", annotations=many, schedulingGates=gates))
        path = f"{hostile.pods_path}/app"
        wait(lambda: KEPT in mallory.merge(path, {"metadata": changes[0]}).message, "the admission policy is in force")
        tries = [(path + sub, change, KEPT) for change in changes for sub in ("", "/status")]
        tries += [
            (path, {"labels": {env.INJECTED_LABEL: value}}, "label raddle.dev/injected") for value in ("false", None)
        ]
        tries += [(f"{hostile.pods_path}/crowded{sub}", changes[0], MANY_KEPT) for sub in ("", "/status")]
        passed = [
            f"{where}: {change}"
            for where, change, said in tries
            if said not in mallory.merge(where, {"metadata": change}).message
        ]
        others_free = [
            mallory.merge(path, {"metadata": {"labels": {"tried": "yes"}}}),
            mallory.merge(path + "/status", {}),
        ]
        same = all(_of_raddle(hostile.get(one["metadata"]["name"])) == _of_raddle(one) for one in (before, crowded))
    figures = {"changes tried": str(len(tries)), "refused": str(len(tries) - len(passed))}
    return Result(
        figures,
        (
            *(f"not refused: {what}" for what in passed),
            *broken_unless(
                raddles_annotations_are_as_before=same,
                other_changes_are_free=not any(one.message for one in others_free),
            ),
        ),
    )


def _of_raddle(one: Mapping[str, Any]) -> dict[str, str]:
    return {key: text for key, text in one["metadata"]["annotations"].items() if "raddle.dev/" in key}


# --- a node -----------------------------------------------------------------------------------------------------------


def other_nodes(raddle: LocalRaddle) -> Result:
    """An agent's token, as its node has it, writes its own node's topology, others', none's, and what it may not."""
    node, other = f"lab-{next(_numbers)}", f"lab-{next(_numbers)}"
    cluster, pods = raddle.cluster, f"/api/v1/namespaces/{NAMESPACE}/pods"
    body = {
        "metadata": {"name": f"agent-on-{node}"},
        "spec": {
            "serviceAccountName": "raddle-agent",
            "nodeName": node,
            "containers": [{"name": "agent", "image": "raddle"}],
        },
    }
    with unharmed(raddle):
        handle = cluster.register_node(node, cpus=4, taints=[TAINT])
        made = cluster.client.post(pods, body)
        cluster.client.apply(topology(other))
        try:
            with (
                Caller.account(cluster, "raddle-agent", NAMESPACE, made) as agent,
                Caller.account(cluster, "raddle-agent", NAMESPACE) as unbound,
            ):
                wait(
                    lambda: agent.apply(f"{TOPOLOGIES}/nowhere", topology("nowhere")).status == FORBIDDEN,
                    "the admission policy is in force",
                )
                own = agent.apply(f"{TOPOLOGIES}/{node}", topology(node))
                tries = [agent.apply(f"{TOPOLOGIES}/{name}", topology(name)) for name in (other, "absent")]
                tries += [unbound.apply(f"{TOPOLOGIES}/{name}", topology(name)) for name in (node, other)]
                tries += [agent.request("DELETE", f"{TOPOLOGIES}/{name}") for name in (node, other)]
                tries += [agent.merge(f"{TOPOLOGIES}/{name}/status", {"status": {}}) for name in (node, other)]
        finally:
            handle.delete()
            for path in (f"{pods}/agent-on-{node}", f"{TOPOLOGIES}/{other}", f"{TOPOLOGIES}/{node}"):
                cluster.client.delete(path, missing_ok=True)
    done = [answer for answer in tries if answer.status not in (FORBIDDEN, UNPROCESSABLE)]
    figures = {"writes of others' objects tried": str(len(tries)), "refused": str(len(tries) - len(done))}
    return Result(
        figures,
        (*(f"got {one.status}" for one in done), *broken_unless(its_own_is_written=not own.message)),
    )


TAINT: Final = {"key": "lab", "value": "yes", "effect": "NoSchedule"}


CHECKS: Final = (
    Check(
        "other-tenants",
        "A user with edit in one namespace reads, writes, names and forges what is another tenant's.",
        "Every request is forbidden, no pod gets another's values, and the other tenant's pods are as before.",
        lambda world: others(world, world.raddle),
        "attack",
    ),
    Check(
        "own-code",
        "The user names libraries, paths and images in policies, provider options, config entries and annotations.",
        "Each such policy is refused with its field, and nothing of it runs or is mounted.",
        lambda world: code(world, world.raddle),
        "attack",
    ),
    Check(
        "running-pods",
        "The user, who may write pods/status, changes Raddle's annotations of a running pod.",
        "Each change is refused by either way, also after the pod was crowded with others; other changes are free.",
        lambda world: running_pods(world, world.raddle),
        "attack",
    ),
    Check(
        "another-node",
        "An agent's token writes another node's topology, deletes one, writes a status; or it is bound to no node.",
        "It writes its own node's topology and nothing else.",
        lambda world: other_nodes(world.raddle),
        "attack",
    ),
)
