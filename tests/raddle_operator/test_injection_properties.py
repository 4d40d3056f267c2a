"""What holds for every pod: no exception, a patch that applies, the same end the second time, nothing else touched.

`make fuzz` tries the same of a million reviews.
"""

import copy
from dataclasses import replace

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st
from support import strategies, tunings
from support.examples import examples
from support.injections import SHIM
from support.machines import small_machines

from raddle import env
from raddle.planning.capacity import is_exclusive
from raddle.planning.wire import read_plan_text
from raddle_operator.injection import injected, plan_annotations
from raddle_operator.injection.binding import BindingOutcome, rebind
from raddle_operator.injection.decide import MAX_ANNOTATIONS_BYTES, Facts, Settings, decide_object
from raddle_operator.injection.literals import VARIABLES
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import SHIM_VOLUME
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective

NEW = replace(SHIM, config_map="raddle-shim-new")
SETTINGS = st.sampled_from(
    [
        Settings(),
        Settings(shim=replace(NEW, items={})),
        Settings(shim=replace(NEW, config_map=None)),
        *(Settings(shim=NEW, door=door) for door in (True, True, False)),
        *(Settings(shim=NEW, door=door, agent="10.96.0.12:8126") for door in (True, False)),
    ]
)
NAMESPACES = st.sampled_from(("enabled", "enabled", "enabled", "labelled", "disabled"))


@st.composite
def facts(draw):
    return Facts(
        smallest_cores=draw(st.none() | st.integers(1, 64)),
        machines=draw(st.just({}) | st.builds(lambda machine: {"node-1": machine}, small_machines())),
        config_map_present=draw(st.sampled_from((True, True, False))),
        architectures=draw(st.sampled_from((frozenset(), frozenset({"x86_64"}), frozenset({"x86_64", "aarch64"})))),
    )


@st.composite
def situations(draw, pods=strategies.pods()):  # noqa: B008 (a strategy has no state)
    """Arguments of decide_object."""
    names = draw(st.sampled_from((("p0",), ("p0",), ("p0", "p1"), ("p1",), ())))
    policies = Policies(policy_from_object(draw(strategies.policies(name))) for name in names)
    labels = {env.INJECT_LABEL: draw(NAMESPACES)}
    return draw(pods), "ns", labels, policies, draw(facts()), draw(SETTINGS)


def apply(obj, decision):
    return jsonpatch.apply_patch(obj, decision.operations)


def the_patch_applies_and_a_second_decision_changes_nothing(patched, decision, rest):
    again = decide_object(patched, *rest)
    assert again.operations == []
    assert (again.skip, again.containers) == (decision.skip, decision.containers)


def the_qos_class_and_the_users_own_parts_stay(obj, patched):
    assert strategies.qos(patched) == strategies.qos(obj)
    for field in ("containers", "initContainers"):
        theirs, originals = patched["spec"].get(field, []), obj["spec"].get(field, [])
        assert [c["name"] for c in theirs] == [c["name"] for c in originals]
        for new, old in zip(theirs, originals, strict=True):
            untouched = set(old) - {"env", "volumeMounts"}
            assert {key: new[key] for key in untouched} == {key: old[key] for key in untouched}
            assert set(new) - set(old) <= {"env", "volumeMounts"}


OWN = {env.PLAN, env.AGENT, env.LITERALS}
TOUCHED = {*plan_annotations.COUNTS, *VARIABLES, "SERVER_THREADS", "LLAMA_ARG_THREADS", *OWN}


def the_users_variables_keep_their_order_and_values(obj, patched):
    for field in ("containers", "initContainers"):
        new = {c["name"]: c for c in patched["spec"].get(field, [])}
        for old in obj["spec"].get(field, []):
            theirs = [e for e in old.get("env", []) if e["name"] not in TOUCHED and "annotations['" not in str(e)]
            after = [e for e in new[old["name"]].get("env", []) if e["name"] not in TOUCHED]
            assert after == theirs


def no_value_of_the_users_is_lost_where_the_policy_respects_it(obj, patched, decision):
    if decision.policy is not None and decision.policy.policy.existing_values == "Override":
        return
    new = {c["name"]: c for c in patched["spec"]["containers"]}
    for old in obj["spec"]["containers"]:
        entries = old.get("env", [])
        if "raddle" in str(entries).lower():
            continue  # a copy's own, or something forged: test_injection.py says what becomes of those
        for entry in entries:
            last = [other for other in entries if other["name"] == entry["name"]][-1]
            unset = last.get("value") in ({"", "0"} if entry["name"].startswith("ORT_") else {""})
            assert unset or entry in new[old["name"]]["env"]


def what_raddle_mounts_and_names_is_there(obj, patched, decision):
    spec = patched["spec"]
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    names = {outcome.name for outcome in decision.containers if outcome.variables}
    for container in spec["containers"]:
        if container["name"] not in names or decision.skip is not None:
            continue
        values = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
        mounted = {mount["mountPath"] for mount in container.get("volumeMounts", []) if mount["name"] in volumes}
        if env.PLAN in values and env.PLAN not in str(obj):
            assert mounted >= {"/opt/raddle", "/etc/ld.so.preload"}


def the_door_is_there_whole_or_not_at_all_and_needs_no_variable_of_a_loader(patched):
    spec = patched["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    shim = volumes.get(SHIM_VOLUME, {}).get("configMap", {})
    for container in spec["containers"] + spec.get("initContainers", []):
        mounts = {m["mountPath"] for m in container.get("volumeMounts", []) if m["name"] == SHIM_VOLUME}
        if mounts and shim.get("name") == "raddle-shim-new":
            assert mounts == {"/etc/ld.so.preload", "/opt/raddle"}
            assert shim["items"] in NEW.items.values()
            ours = injected.literals_of({"metadata": {}, "spec": {"containers": [container]}})[container["name"]]
            assert not {"PYTHONPATH", "PYTHONUSERBASE", "NODE_OPTIONS", "LD_PRELOAD"} & set(ours)


def every_reference_to_an_annotation_of_ours_finds_a_value_within_its_bounds(patched):
    annotations = patched["metadata"].get("annotations", {})
    referenced = set()
    for container in patched["spec"]["containers"] + patched["spec"].get("initContainers", []):
        for entry in container.get("env", []):
            path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            prefix, name = plan_annotations.split(path[len("metadata.annotations['") : -2])
            if prefix:
                assert name == container["name"]
                referenced.add(prefix + name)
                value = annotations[prefix + name]
                assert 0 < len(value) <= plan_annotations.reserved(prefix)
                if prefix != env.SHIM_PREFIX:
                    assert 1 <= int(value) <= env.MAX_THREADS
                else:
                    env.decode(value)
    ours = {key for key in annotations if key.startswith(env.CONTAINER_PREFIXES)}
    assert {key for key in ours if not key.startswith(env.PLAN_PREFIX)} == referenced
    for key in ours - referenced:
        read_plan_text(annotations[key])
    # What is at its limit already is left as it is.
    if ours:
        assert sum(map(len, annotations)) + sum(map(len, annotations.values())) <= MAX_ANNOTATIONS_BYTES


def a_pod_without_values_bears_no_mark_of_raddle(patched, decision):
    marked = patched["metadata"].get("labels", {}).get(env.INJECTED_LABEL)
    if decision.injected:
        assert marked == "true"
        return
    assert marked is None
    assert not any(plan_annotations.is_ours(key) for key in patched["metadata"].get("annotations", {}))
    for container in patched["spec"]["containers"]:
        assert "raddle.dev/" not in str(container.get("env"))
        names = {entry["name"] for entry in container.get("env", []) if "value" in entry}
        assert not names & {env.LITERALS}


# A count that no plan has: an entry equal to Raddle's own can't be told from it.
OTHERS = {"PYTHONPATH": "/otel/python", "JAVA_TOOL_OPTIONS": "-javaagent:/otel/agent.jar", "GOMAXPROCS": "99999"}


def what_another_webhook_adds_between_two_looks_is_kept_and_ours_goes_with_the_opt_in(patched, rest):
    changed = copy.deepcopy(patched)
    others = [{"name": name, "value": text} for name, text in OTHERS.items()]
    for container in changed["spec"]["containers"]:
        container.setdefault("env", []).extend(copy.deepcopy(others))
    again = apply(changed, decide_object(changed, *rest))
    assert decide_object(again, *rest).operations == []
    namespace, labels, _, facts_now, started_with = rest
    left = apply(again, decide_object(again, namespace, labels, Policies([]), facts_now, started_with))
    override = any(policy.policy.existing_values == "Override" for policy in rest[2])
    for container in left["spec"]["containers"]:
        kept = others[:2] if override else others
        assert [entry for entry in kept if entry not in container["env"]] == []


def no_two_volumes_mounts_or_containers_collide(patched):
    spec = patched["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    assert len(volumes) == len(set(volumes))
    names = [c["name"] for c in spec["containers"] + spec.get("initContainers", [])]
    assert len(names) == len(set(names))
    for container in spec["containers"] + spec.get("initContainers", []):
        paths = [mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts", [])]
        assert len(paths) == len(set(paths))


def binding_only_overwrites_and_stays_within_what_was_reserved(patched, machine):
    annotations = patched["metadata"].get("annotations", {})
    plans = [read_plan_text(text) for key, text in annotations.items() if key.startswith(env.PLAN_PREFIX)]
    for known in (None, *(tuned_for(plan, machine) for plan in plans[:1])):
        bound = rebind(annotations, "node-1", machine, namespace="ns", tunings=known)
        assert set(bound.annotations) <= set(annotations)
        for key, value in bound.annotations.items():
            assert len(value.encode()) <= plan_annotations.reserved(plan_annotations.split(key)[0])
        assert bound.outcome == (BindingOutcome.NODE_SPECIFIC if plans else BindingOutcome.NOT_INJECTED)


def tuned_for(plan, machine):
    """A tuning whose result is valid for what was recorded of a container, and changes as much as it can."""
    won = {
        "threads.executionMode": "Parallel",
        "threads.interOp": 2,
        "threads.intraOp": 2,
        "threads.spinning": "Always",
        "onnxruntime.globalThreadPool": True,
        "onnxruntime.graphOptimizationLevel": "Extended",
    }
    key = {
        "limit_cpus": plan.budget.quota_cpus,
        "exclusive": is_exclusive(machine, plan.budget),
        "objective": Objective(kind=Kind(plan.policy.objective)),
    }
    found = tunings.summary(machine, winner=Candidate.of(won), key=key)
    image = plan.tuning.image if plan.tuning is not None else ""
    return tunings.by_name(tunings.with_status(tunings.of_class(found, image=image), **tunings.IMAGE))


# A situation costs more to draw than to judge: each one is judged by all.
@given(situations(), small_machines())
@examples(1.5)
def test_every_pod_has_every_property(situation, machine):
    obj, *rest = situation
    before = copy.deepcopy(obj)
    decision = decide_object(obj, *rest)
    assert obj == before, "the pod that came in was changed"
    patched = apply(obj, decision)
    first = copy.deepcopy(patched)
    the_patch_applies_and_a_second_decision_changes_nothing(patched, decision, rest)
    the_qos_class_and_the_users_own_parts_stay(obj, patched)
    the_users_variables_keep_their_order_and_values(obj, patched)
    no_value_of_the_users_is_lost_where_the_policy_respects_it(obj, patched, decision)
    what_raddle_mounts_and_names_is_there(obj, patched, decision)
    the_door_is_there_whole_or_not_at_all_and_needs_no_variable_of_a_loader(patched)
    every_reference_to_an_annotation_of_ours_finds_a_value_within_its_bounds(patched)
    a_pod_without_values_bears_no_mark_of_raddle(patched, decision)
    what_another_webhook_adds_between_two_looks_is_kept_and_ours_goes_with_the_opt_in(patched, rest)
    no_two_volumes_mounts_or_containers_collide(patched)
    binding_only_overwrites_and_stays_within_what_was_reserved(patched, machine)
    assert patched == first, "a later look has changed the pod"


@given(situations(pods=strategies.mutilated(strategies.pods())))
@examples(2)
def test_no_shape_of_a_pod_makes_it_raise_or_write_a_patch_that_does_not_apply(situation):
    obj, *rest = situation
    decision = decide_object(obj, *rest)
    patched = apply(obj, decision) if decision.operations else obj
    assert decide_object(patched, *rest).operations == []


@given(
    st.dictionaries(st.sampled_from([p + "c" for p in env.CONTAINER_PREFIXES]), st.text(max_size=60)), small_machines()
)
def test_binding_never_raises_and_never_adds_whatever_the_annotations_say(annotations, machine):
    bound = rebind(annotations, "node-1", machine)
    assert set(bound.annotations) <= set(annotations)
