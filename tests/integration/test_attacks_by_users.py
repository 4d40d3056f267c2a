"""What a user of one namespace can try with labels, annotations and policies of their own, and an agent's token.

They have `edit` in their namespace, and may write pods/status.
"""

import itertools

import pytest
from support.attackers import FORBIDDEN, UNPROCESSABLE, Caller, unharmed, user_of
from support.nodes import unregister
from support.reliability.installed import CONFIGURATION_PATH, pod

from cluster.local_raddle import NAMESPACE
from cluster.namespaces import POLICIES, TOPOLOGIES
from cluster.objects import governed_by, injected, policy, threads, topology
from cluster.waiting import wait
from raddle import env

IMAGE = "registry.example/app:1"
LIBRARY, EVIL_IMAGE = "/tmp/evil.so", "evil.test/image:1"
SECRET_THREADS, OWN_THREADS = 7, 2
# Specs of policies that would make a process load, or a pod run, what their author chose.
NAMES_CODE = (
    {"onnxruntime": {"configEntries": {"session.custom_ops_library": LIBRARY}}},
    {"onnxruntime": {"configEntries": {"ep.dynamic.library": LIBRARY}}},
    {"onnxruntime": {"providerOptions": {"OpenVINOExecutionProvider": {"cache_dir": "/tmp"}}}},
    {"onnxruntime": {"providerOptions": {"EvilExecutionProvider": {"library": LIBRARY}}}},
    {"allocator": LIBRARY},
    {"shim": EVIL_IMAGE},
)
SHIMS = ("Auto", "None")
KEPT = "is written by Raddle when the pod is created and stays as it is"
MANY_KEPT = "annotations of a pod that has more than 1000 stay as they are"
GATES = [{"name": "test/wait"}]
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _unharmed(raddle):
    with unharmed(raddle):
        yield


@pytest.fixture
def mallory(hostile):
    """A user of the namespace `hostile`."""
    with user_of(hostile) as caller:
        yield caller


# --- what is another tenant's -----------------------------------------------------------------------------------------


@pytest.mark.attack(
    "other-tenants",
    "A user with edit in one namespace reads, writes, names and forges what is another tenant's.",
    "Every request is forbidden, no pod gets another's values, and the other tenant's pods are as before.",
)
def test_nothing_of_another_tenant_is_readable_writable_or_usable(space, hostile, mallory, figures):
    space.store(policy("secret-sauce", threads={"intraOp": SECRET_THREADS}))
    space.governed("secret-sauce")
    space.create(pod("app"))
    requests = list(foreign_requests(space))
    answered = [what for what in requests if mallory.request(*what).status != FORBIDDEN]
    labels = ("secret-sauce", f"{space.name}.secret-sauce")
    named = [hostile.create(pod(unused(), labels={env.POLICY_LABEL: name})) for name in labels]
    taken = [one for one in named if injected(one) or "env" in str(one)]
    hostile.store(policy("mine", priority=1000, threads={"intraOp": OWN_THREADS}))
    hostile.governed("mine")
    forged = [hostile.create(body) for body in claiming(hostile)]
    theirs = [one for one in forged if given(one) != (OWN_THREADS, "InferenceThreading/mine")]
    figures |= {
        "requests for another's objects": len(requests),
        "answered": len(answered),
        "pods that name or forge another's policy": len(named) + len(forged),
        "with its values": len(taken) + len(theirs),
    }
    assert answered == []
    assert (taken, theirs) == ([], [])
    assert threads(space.create(pod("later"))) == SECRET_THREADS


def given(one):
    return threads(one), governed_by(one)


def foreign_requests(space):
    own = f"{POLICIES}/namespaces/{space.name}/inferencethreadings"
    core = f"/api/v1/namespaces/{space.name}"
    cluster_policies = f"{POLICIES}/clusterinferencethreadings"
    reads = [own, f"{own}/secret-sauce", f"{POLICIES}/inferencethreadings", cluster_policies, TOPOLOGIES]
    reads += [f"{core}/{kind}" for kind in ("pods", "configmaps", "secrets", "events")]
    reads += ["/api/v1/nodes", "/api/v1/pods", f"/api/v1/namespaces/{NAMESPACE}/secrets", CONFIGURATION_PATH]
    return [
        *(("GET", path) for path in reads),
        ("DELETE", f"{own}/secret-sauce"),
        ("POST", own, policy("mine")),
        ("POST", cluster_policies, policy("mine", kind="ClusterInferenceThreading", tier="Admin")),
        ("POST", TOPOLOGIES, topology("mine")),
        ("POST", f"{core}/pods/app/binding", {"target": {"name": "any"}}),
    ]


def claiming(hostile):
    """Pods that say that they have the other tenant's values."""
    claims = {env.GOVERNED_BY: "InferenceThreading/secret-sauce", env.THREADS_PREFIX + "serve": str(SECRET_THREADS)}
    elsewhere = pod(unused(), annotations=claims)
    elsewhere["metadata"]["namespace"] = hostile.name
    return [pod(unused(), annotations=claims), pod(unused(), labels={env.INJECTED_LABEL: "true"}), elsewhere]


def unused():
    return f"p{next(_numbers)}"


# --- what runs --------------------------------------------------------------------------------------------------------


@pytest.mark.attack(
    "own-code",
    "The user names libraries, paths and images in policies, provider options, config entries and annotations.",
    "Each such policy is refused with its field, and nothing of it runs or is mounted.",
)
def test_nothing_that_a_user_names_runs_or_is_mounted(hostile, mallory, figures):
    own = f"{POLICIES}/namespaces/{hostile.name}/inferencethreadings"
    answers = [mallory.request("POST", own, policy(unused(), **spec)) for spec in NAMES_CODE]
    accepted = [
        spec
        for spec, answer in zip(NAMES_CODE, answers, strict=True)
        if answer.status != UNPROCESSABLE or "spec." not in answer.message
    ]
    strange = {}
    for shim in SHIMS:
        hostile.store(policy(shim.lower(), shim=shim, podSelector={"matchLabels": {"shim": shim}}))
        body, governor = evil_pod(shim), f"InferenceThreading/{shim.lower()}"
        wait(lambda body=body, name=governor: governed_by(hostile.probe(body)) == name, f"{governor} is in force")
        strange[shim] = foreign_parts(hostile.create(body))
    lie = mallory.merge(f"{own}/auto/status", {"status": {"injectedPods": 7}})
    figures |= {
        "policies that name code": len(NAMES_CODE),
        "refused with the field": len(NAMES_CODE) - len(accepted),
        "pods with forged annotations": len(SHIMS),
        "images, volumes or values from those": sum(map(len, strange.values())),
    }
    assert accepted == []
    assert not any(strange.values()), strange
    assert lie.status == FORBIDDEN


def evil_pod(shim):
    annotations = {
        "raddle.dev/shim-image": EVIL_IMAGE,
        "raddle.dev/shim": "None",
        env.SHIM_PREFIX + "serve": f"v=1;library={LIBRARY}",
        env.PLAN_PREFIX + "serve": f'{{"v":1,"image":"{EVIL_IMAGE}"}}',
    }
    return pod(f"evil-{shim.lower()}", annotations=annotations, labels={"raddle.dev/shim": "evil", "shim": shim})


def foreign_parts(made):
    """What of a stored pod is neither its author's own nor Raddle's."""
    spec = made["spec"]
    images = {one["image"] for one in [*spec["containers"], *spec.get("initContainers", [])]}
    found = [images] if images != {IMAGE} else []
    for volume in spec.get("volumes", []):
        name = volume.get("configMap", {}).get("name", "raddle-shim-")
        known = volume.keys() <= {"name", "configMap", "emptyDir"} and name.startswith("raddle-shim-")
        if not known and not volume["name"].startswith("kube-api-access-"):
            found.append(volume)
    # A key that Raddle does not know stays, and nobody reads it.
    ours = {
        key: text for key, text in made["metadata"]["annotations"].items() if key.startswith(env.CONTAINER_PREFIXES)
    }
    return found if ours and "evil" not in str(ours) else [*found, ours]


# --- pods that run ----------------------------------------------------------------------------------------------------


@pytest.mark.attack(
    "running-pods",
    "The user, who may write pods/status, changes Raddle's annotations of a running pod.",
    "Each change is refused by either way, also after the pod was crowded with others; other changes are free.",
)
def test_raddles_annotations_of_a_running_pod_stay_as_they_are(hostile, mallory, figures):
    changes = [
        {"annotations": {env.THREADS_PREFIX + "serve": "999"}},
        {"annotations": {env.PLAN_PREFIX + "serve": None}},
        {"annotations": {env.SHIM_PREFIX + "serve": "v=1;intra_op=999"}},
        {"annotations": {env.GOVERNED_BY: "InferenceThreading/other"}},
        {"annotations": {"raddle.dev/anything": ""}},
        {"annotations": None},
    ]
    hostile.store(policy())
    hostile.governed()
    many = {f"k{number}": "" for number in range(1500)}
    made = [
        hostile.create(pod("app", schedulingGates=GATES)),
        hostile.create(pod("crowded", annotations=many, schedulingGates=GATES)),
    ]
    path, crowded = f"{hostile.pods_path}/app", f"{hostile.pods_path}/crowded"
    wait(lambda: KEPT in mallory.merge(path, {"metadata": changes[0]}).message, "the admission policy is in force")
    tries = [(path + sub, change, KEPT) for change in changes for sub in ("", "/status")]
    tries += [(path, {"labels": {env.INJECTED_LABEL: value}}, "label raddle.dev/injected") for value in ("false", None)]
    tries += [(crowded + sub, changes[0], MANY_KEPT) for sub in ("", "/status")]
    passed = [
        (where, change)
        for where, change, said in tries
        if said not in mallory.merge(where, {"metadata": change}).message
    ]
    figures |= {"changes tried": len(tries), "refused": len(tries) - len(passed)}
    assert passed == []
    assert mallory.merge(path, {"metadata": {"labels": {"tried": "yes"}}}).message == ""
    assert mallory.merge(path + "/status", {}).message == ""
    for one in made:
        assert of_raddle(hostile.get(one["metadata"]["name"])) == of_raddle(one)


def of_raddle(one):
    return {key: text for key, text in one["metadata"]["annotations"].items() if "raddle.dev/" in key}


# --- a node -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def node(raddle):
    """A node that nothing else is bound to, and the pod of its agent."""
    name, pods = f"lab-{next(_numbers)}", f"/api/v1/namespaces/{NAMESPACE}/pods"
    handle = raddle.cluster.register_node(name, cpus=4, taints=[{"key": "lab", "value": "yes", "effect": "NoSchedule"}])
    containers = [{"name": "agent", "image": "raddle"}]
    spec = {"serviceAccountName": "raddle-agent", "nodeName": name, "containers": containers}
    yield name, raddle.cluster.client.post(pods, {"metadata": {"name": f"agent-on-{name}"}, "spec": spec})
    raddle.cluster.client.delete(f"{pods}/agent-on-{name}", missing_ok=True)
    unregister(raddle.cluster, handle)


@pytest.mark.attack(
    "another-node",
    "An agent's token writes another node's topology, deletes one, writes a status; or it is bound to no node.",
    "It writes its own node's topology and nothing else.",
)
def test_an_agent_writes_its_own_nodes_topology_only(raddle, node, figures):
    own, agents_pod = node
    other, cluster = f"lab-{next(_numbers)}", raddle.cluster
    cluster.client.apply(topology(other))
    with (
        Caller.account(cluster, "raddle-agent", NAMESPACE, agents_pod) as agent,
        Caller.account(cluster, "raddle-agent", NAMESPACE) as unbound,
    ):
        wait(
            lambda: agent.apply(f"{TOPOLOGIES}/nowhere", topology("nowhere")).status == FORBIDDEN,
            "the admission policy is in force",
        )
        allowed = [agent.apply(f"{TOPOLOGIES}/{own}", topology(own))]
        allowed.append(agent.merge(f"{TOPOLOGIES}/{own}/status", {"status": {}}))
        tries = [agent.apply(f"{TOPOLOGIES}/{name}", topology(name)) for name in (other, "absent")]
        tries += [unbound.apply(f"{TOPOLOGIES}/{name}", topology(name)) for name in (own, other)]
        tries += [agent.request("DELETE", f"{TOPOLOGIES}/{name}") for name in (own, other)]
        tries.append(agent.merge(f"{TOPOLOGIES}/{other}/status", {"status": {}}))
        tries += [unbound.merge(f"{TOPOLOGIES}/{name}/status", {"status": {}}) for name in (own, other)]
    cluster.client.delete(f"{TOPOLOGIES}/{other}", missing_ok=True)
    done = [answer for answer in tries if answer.status not in (FORBIDDEN, UNPROCESSABLE)]
    figures |= {"writes of others' objects tried": len(tries), "refused": len(tries) - len(done)}
    assert done == []
    assert [answer.message for answer in allowed] == ["", ""]
