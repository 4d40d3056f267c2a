"""Where a tuning's pods can run: what nodes say of themselves, and what a pod template asks of them.

As kube-scheduler filters nodes, before it looks at what is free on them (component-helpers, scheduling/corev1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle_operator.objects.reading import as_object, mapping, sequence, text_map, texts
from raddle_operator.objects.selectors import Selector
from raddle_operator.objects.times import epoch_s
from raddle_operator.results.key import NodeClass

LOST_AFTER_S: Final = 60
"""A node that has not been Ready for so long is lost; the kubelet was silent for 40 s by then."""
_REFUSING: Final = ("NoSchedule", "NoExecute")
_MOST_TITLE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as far as it matters to pods.

    `taints` are (key, value, effect), those that keep pods off. `unready_s` is since when it is not Ready, in seconds
    of the epoch, None where it is.
    """

    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...] = ()
    cordoned: bool = False
    unready_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The nodes that can be measured, by class, in the order of their names; and why others that are selected can't."""

    classes: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]


def node_from_object(obj: Mapping[str, Any]) -> Node:
    """The node that a JSON object is. Raises SpecError for a shape that no node has."""
    metadata, spec, status = (mapping(obj, part, "") for part in ("metadata", "spec", "status"))
    taints = (as_object(taint, "spec.taints") for taint in sequence(spec, "taints", "spec"))
    conditions = (as_object(one, "status.conditions") for one in sequence(status, "conditions", "status"))
    ready = next((one for one in conditions if one.get("type") == "Ready"), {})
    since = ready.get("lastTransitionTime") or metadata["creationTimestamp"]
    return Node(
        labels=text_map(metadata, "labels", "metadata"),
        taints=tuple(
            (str(taint.get("key", "")), str(taint.get("value", "")), str(taint["effect"]))
            for taint in taints
            if taint.get("effect") in _REFUSING
        ),
        cordoned=spec.get("unschedulable") is True,
        unready_s=None if ready.get("status") == "True" else epoch_s(since),
    )


def places(
    selector: Selector, pod_spec: Mapping[str, Any], nodes: Mapping[str, Node], classes: Mapping[str, NodeClass]
) -> Places:
    """The nodes that the selector and the template's own wishes leave. `classes` are those of known topologies."""
    result: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    for name, node in sorted(nodes.items()):
        if not selector.matches(node.labels):
            continue
        why = next(_hindrances(name, node, pod_spec), "")
        if not why and name not in classes:
            why = "it has no valid NodeCPUTopology"
        if why:
            left_out[name] = why
        else:
            result.setdefault(classes[name].title[:_MOST_TITLE], []).append(name)
    return Places(classes={title: tuple(names) for title, names in sorted(result.items())}, left_out=left_out)


def is_lost(node: Node | None, now_s: float) -> bool:
    """Whether what runs there will not be heard of again. None: there is no such node."""
    return node is None or (node.unready_s is not None and now_s - node.unready_s >= LOST_AFTER_S)


def _hindrances(name: str, node: Node, pod_spec: Mapping[str, Any]) -> Iterator[str]:
    """Yields why a pod can't start there, in words."""
    if node.unready_s is not None:
        yield "it is not Ready"
    if node.cordoned:
        yield "it is cordoned"
    tolerations = [as_object(one, "tolerations") for one in sequence(pod_spec, "tolerations", "")]
    for taint in node.taints:
        if not any(_tolerates(one, taint) for one in tolerations):
            key, value, effect = taint
            yield f"the workload doesn't tolerate its taint {key}{value and '='}{value}:{effect}"
    if not text_map(pod_spec, "nodeSelector", "").items() <= node.labels.items():
        yield "it lacks a label of the workload's nodeSelector"
    if not _is_near(name, node, pod_spec):
        yield "the workload's node affinity excludes it"


def _tolerates(toleration: Mapping[str, Any], taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("key") not in (None, "", key):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return toleration.get("key") == key and (toleration.get("value") or "") == value


def _is_near(name: str, node: Node, pod_spec: Mapping[str, Any]) -> bool:
    """Whether required node affinity allows the node: one of its terms must hold altogether."""
    affinity = mapping(mapping(pod_spec, "affinity", ""), "nodeAffinity", "affinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = sequence(as_object(required, "affinity.nodeAffinity"), "nodeSelectorTerms", "affinity.nodeAffinity")
    return any(_holds(as_object(term, "affinity.nodeAffinity"), name, node) for term in terms)


def _holds(term: Mapping[str, Any], name: str, node: Node) -> bool:
    expressions = [as_object(one, "matchExpressions") for one in sequence(term, "matchExpressions", "")]
    fields = [as_object(one, "matchFields") for one in sequence(term, "matchFields", "")]
    met = [_meets(one, node.labels) for one in expressions] + [_meets(one, {"metadata.name": name}) for one in fields]
    return bool(met) and all(met)


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    there, values = labels.get(str(requirement.get("key"))), texts(requirement, "values", "")
    match requirement.get("operator"):
        case "In":
            return there in values
        case "NotIn":
            return there not in values
        case "Exists":
            return there is not None
        case "DoesNotExist":
            return there is None
        case "Gt" | "Lt" as operator if there is not None and there.isdecimal() and len(values) == 1:
            return values[0].isdecimal() and (int(there) > int(values[0])) is (operator == "Gt") and there != values[0]
    return False
