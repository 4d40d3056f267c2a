"""What holds for every pod: no exception, a patch that applies, the same end the second time, nothing else touched.

`make fuzz` tries the same of a million reviews.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import jsonpatch
import pytest
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
from raddle_operator.injection.volumes import SHIM_INIT_CONTAINER, SHIM_VOLUME
from raddle_operator.objects.pods import EXTENDED, ORIGINAL
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective

NEW = replace(SHIM, config_map="raddle-shim-new")
SETTINGS = st.sampled_from(
    [
        Settings(),
        Settings(shim=replace(NEW, door_items={}, image="")),
        Settings(shim=replace(NEW, door_items={})),
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
        theirs = [c for c in patched["spec"].get(field, []) if not is_copy_container(c)]
        originals = [c for c in obj["spec"].get(field, []) if not is_copy_container(c)]
        assert [c["name"] for c in theirs] == [c["name"] for c in originals]
        for new, old in zip(theirs, originals, strict=True):
            untouched = set(old) - {"env", "volumeMounts"}
            assert {key: new[key] for key in untouched} == {key: old[key] for key in untouched}
            assert set(new) - set(old) <= {"env", "volumeMounts"}


def is_copy_container(container):
    return container["name"] == SHIM_INIT_CONTAINER


ORIGINALS = {ORIGINAL + name for name in EXTENDED}
TOUCHED = {
    *plan_annotations.COUNTS,
    *VARIABLES,
    "SERVER_THREADS",
    "LLAMA_ARG_THREADS",
    *EXTENDED,
    *ORIGINALS,
    env.PLAN,
    env.REPORT,
    env.AGENT,
    env.LITERALS,
    "PYTHONUSERBASE",
}


def the_users_variables_keep_their_order_and_values(obj, patched):
    for field in ("containers", "initContainers"):
        new = {c["name"]: c for c in patched["spec"].get(field, [])}
        for old in obj["spec"].get(field, []):
            if old["name"] not in new:
                continue
            theirs = [e for e in old.get("env", []) if e["name"] not in TOUCHED and "annotations['" not in str(e)]
            after = [e for e in new[old["name"]].get("env", []) if e["name"] not in TOUCHED]
            assert after == theirs


def is_kept(entry, entries):
    """Whether an entry of the user's is there as it was, within a longer text, or under the other name."""
    if entry in entries:
        return True
    name = entry["name"]
    if "valueFrom" in entry:
        return name in EXTENDED and {**entry, "name": ORIGINAL + name} in entries
    texts = [other.get("value", "") for other in entries if other["name"] == name]
    return name in EXTENDED and any(entry.get("value", "").strip() in text for text in texts)


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
            assert unset or is_kept(entry, new[old["name"]]["env"])


def what_raddle_mounts_and_names_is_there(obj, patched, decision):
    spec = patched["spec"]
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    names = {outcome.name for outcome in decision.containers if outcome.variables}
    for container in spec["containers"]:
        if container["name"] not in names or decision.skip is not None:
            continue
        values = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
        mounted = {mount["mountPath"] for mount in container.get("volumeMounts", []) if mount["name"] in volumes}
        if any("/opt/raddle/" in values.get(name, "") for name in EXTENDED) and env.PLAN in values:
            assert "/opt/raddle" in mounted
        if values.get(env.REPORT) == "/opt/raddle-report" and env.REPORT not in str(obj):
            assert "/opt/raddle-report" in mounted


def the_door_is_there_whole_or_not_at_all_and_needs_no_variable_of_a_loader(patched):
    spec = patched["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    shim = volumes.get(SHIM_VOLUME, {}).get("configMap", {})
    for container in spec["containers"] + spec.get("initContainers", []):
        mounts = {m["mountPath"] for m in container.get("volumeMounts", []) if m["name"] == SHIM_VOLUME}
        if "/etc/ld.so.preload" in mounts and shim.get("name") == "raddle-shim-new":
            assert mounts == {"/etc/ld.so.preload", "/opt/raddle"}
            assert shim["items"] in NEW.door_items.values()
            ours = injected.literals_of({"metadata": {}, "spec": {"containers": [container]}})[container["name"]]
            assert not {"PYTHONPATH", "PYTHONUSERBASE", "NODE_OPTIONS", "LD_PRELOAD"} & set(ours)
        elif "/opt/raddle" in mounts and shim.get("name") == "raddle-shim-new":
            assert shim["items"] == NEW.items


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


PARTS = {
    "PYTHONPATH": "/opt/raddle/python",
    "NODE_OPTIONS": "--require /opt/raddle/node/raddle.cjs",
    "LD_PRELOAD": "/opt/raddle/native/",
}


def a_pod_without_values_bears_no_mark_of_raddle(patched, decision):
    marked = patched["metadata"].get("labels", {}).get(env.INJECTED_LABEL)
    if decision.injected:
        assert marked == "true"
        return
    assert marked is None
    assert not any(plan_annotations.is_ours(key) for key in patched["metadata"].get("annotations", {}))
    for container in patched["spec"]["containers"]:
        assert "raddle.dev/" not in str(container.get("env"))
        texts = [(entry["name"], entry.get("value") or "") for entry in container.get("env", [])]
        assert not any(text.startswith(PARTS[name]) for name, text in texts if name in PARTS)
        names = {entry["name"] for entry in container.get("env", []) if "value" in entry}
        assert not names & {env.LITERALS}


def test_ours_goes_from_an_entry_before_one_that_is_as_empty_as_it_becomes():
    entries = [{"name": "PYTHONPATH", "value": text} for text in ("/opt/raddle/python", "")]
    obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "serve", "image": "x", "env": entries}]}}
    patched = apply(obj, decide_object(obj, "ns", {}, Policies([]), Facts(), Settings()))
    assert [entry["value"] for entry in patched["spec"]["containers"][0]["env"]] == ["", ""]


SEPARATORS = {"PYTHONPATH": ":", "NODE_OPTIONS": " ", "LD_PRELOAD": ":", "JAVA_TOOL_OPTIONS": " "}
OTHERS = {
    "PYTHONPATH": "/otel/python",
    "NODE_OPTIONS": "--require /otel/agent.js",
    "LD_PRELOAD": "/otel/agent.so",
    "JAVA_TOOL_OPTIONS": "-javaagent:/otel/agent.jar",
}
EDITS = st.lists(st.sampled_from(("prepend", "append", "reorder")), min_size=1, max_size=3)


def lists_of(obj):
    """The containers' lists that are texts: (container, variable) -> the entries."""
    found = {}
    for container in obj["spec"]["containers"] + obj["spec"].get("initContainers", []):
        for entry in container.get("env", []):
            if entry["name"] in SEPARATORS and "value" in entry:
                found.setdefault((container["name"], entry["name"]), []).append(entry)
    return found


def edit(obj, edits):
    """Another webhook's look at the pod: it adds its own to the lists that are there."""
    changed = copy.deepcopy(obj)
    for (_, name), entries in lists_of(changed).items():
        separator, other, entry = SEPARATORS[name], OTHERS[name], entries[-1]
        for way in edits:
            text = entry["value"]
            ours = PARTS.get(name)
            if way == "reorder" and ours is not None and text.startswith(ours + separator):
                entry["value"] = text[len(ours + separator) :] + separator + ours
            else:
                entry["value"] = separator.join((other, text) if way == "prepend" else (text, other))
    return changed


def what_another_webhook_adds_between_two_looks_is_kept_and_ours_goes_with_the_opt_in(patched, rest, edits):
    changed = edit(patched, edits)
    again = apply(changed, decide_object(changed, *rest))
    assert decide_object(again, *rest).operations == []
    namespace, labels, _, facts_now, started_with = rest
    gone = decide_object(again, namespace, labels, Policies([]), facts_now, started_with)
    left = apply(again, gone)
    kept_again, kept = lists_of(again), lists_of(left)
    for key, entries in lists_of(changed).items():
        name = key[1]
        if OTHERS[name] in entries[-1]["value"]:
            assert OTHERS[name] in kept_again[key][-1]["value"]
            assert OTHERS[name] in kept[key][-1]["value"]
    for (_, name), entries in kept.items():
        separated = [SEPARATORS[name] + entry["value"] + SEPARATORS[name] for entry in entries]
        ours = {
            "PYTHONPATH": ":/opt/raddle/python:",
            "NODE_OPTIONS": f" {PARTS['NODE_OPTIONS']} ",
            "LD_PRELOAD": ":/opt/raddle/native/",
        }.get(name)
        assert ours is None or not any(ours in text for text in separated)


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
    image = plan.tuned.image if plan.tuned is not None else ""
    return tunings.by_name(tunings.with_status(tunings.of_class(found, image=image), **tunings.IMAGE))


# A situation costs more to draw than to judge: each one is judged by all.
@given(situations(), EDITS, small_machines())
@examples(1.5)
def test_every_pod_has_every_property(situation, edits, machine):
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
    what_another_webhook_adds_between_two_looks_is_kept_and_ours_goes_with_the_opt_in(patched, rest, edits)
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
    st.dictionaries(st.sampled_from([p + "c" for p in env.CONTAINER_PREFIXES]), st.text(max_size=60)),
    small_machines(),
)
def test_binding_never_raises_and_never_adds_whatever_the_annotations_say(annotations, machine):
    bound = rebind(annotations, "node-1", machine)
    assert set(bound.annotations) <= set(annotations)


@pytest.mark.parametrize("name", [SHIM_VOLUME, SHIM_INIT_CONTAINER])
def test_our_names_are_valid_dns_labels(name):
    assert name.replace("-", "").isalnum()
    assert len(name) <= 63
