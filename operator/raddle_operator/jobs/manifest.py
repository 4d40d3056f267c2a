"""A tuning's Job for one node: the workload's container, in which candidates run one after the other, and the tuner.

The pod has what the container needs and nothing else of its template: no label, so that no Service finds it, no port,
no probe, no token of a service account, no priority that would push other pods away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle import env
from raddle_operator.injection import door, volumes
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.jobs.changes import Start
from raddle_operator.jobs.run import (
    GENERATION_ANNOTATION,
    NODE_ANNOTATION,
    TRY_ANNOTATION,
    TUNER,
    TUNING_LABEL,
    job_name,
    lasts_s,
)
from raddle_operator.jobs.template import Template, counted
from raddle_operator.objects.pods import pod_from_object
from raddle_operator.objects.reasons import Skip
from raddle_operator.objects.tuning import KIND, TuningObject

API_VERSION: Final = "raddle.dev/v1alpha1"
FOLDER: Final = "/raddle.tuning"
"""What the measured container and the tuner share."""
REQUEST_FOLDER: Final = "/raddle.request"
"""Where the tuner finds the request of a ConfigMap, by its key."""
KEEP_S: Final = 24 * 3600
"""So long a Job that has ended stays, for its log."""
_GRACE_S: Final = 10
LIMITS: Final = {"cpu": "1500m", "memory": "1Gi"}
"""Of the tuner. The half keeps the thread that asks from being throttled.

And it keeps the container from asking for a CPU of its own: a static CPU manager with full-pcpus-only would refuse one.
"""
_REQUESTS: Final = {**LIMITS, "cpu": "500m"}

_FOLDER_SIZE: Final = "4Gi"
"""The largest file there is a copy of a model, which is a protobuf and so has at most 2 GiB."""
_FOLDER_VOLUME: Final = "raddle-tuning"
_REQUEST_VOLUME: Final = "raddle-request"
# Parts of the container and of the pod's spec that decide how the program runs.
_OF_CONTAINER: Final = (
    "name",
    "image",
    "imagePullPolicy",
    "env",
    "envFrom",
    "resources",
    "securityContext",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
)
_OF_POD: Final = (
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostUsers",
    "imagePullSecrets",
    "nodeSelector",
    "os",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",  # some clusters allow by it which security contexts a pod may have
    "tolerations",
)
# What holds for the container holds for the tuner beside it.
_SHARED_SECURITY: Final = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile", "seLinuxOptions")
# Nobody moves a pod that measures, and no mesh adds a proxy, which would take CPU time and outlive it.
_ANNOTATIONS: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "linkerd.io/inject": "disabled",
}
_LABELS: Final = {
    env.INJECT_LABEL: "disabled",
    "app.kubernetes.io/managed-by": "raddle",
    "sidecar.istio.io/inject": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the operator was started with: the tuner's image, and whether pods may have the door.

    `command` starts what takes the tuner's orders in the measured container.
    """

    image: str
    command: tuple[str, ...]
    door: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One Job. `obj` is the tuning's JSON; `policy` the one that governs the workload's pods, None where none does.

    `reserve_cpus` is what that policy leaves for the pod's others, None where it says nothing.
    `shim` is its wish, and `delivery` how pods of the namespace can have it; `architecture` is the node's, as
    uname names it.
    """

    tuning: TuningObject
    obj: Mapping[str, Any]
    template: Template
    start: Start
    policy: Mapping[str, Any] | None
    reserve_cpus: float | None
    shim: str
    delivery: ShimDelivery
    architecture: str


def manifest(wanted: Wanted, settings: Settings) -> dict[str, Any]:
    """The Job as it is created. Raises SpecError for a template that no pod has."""
    tuning, start = wanted.tuning, wanted.start
    labels = {TUNING_LABEL: tuning.name, **_LABELS}
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": tuning.name, "uid": tuning.uid, "controller": True}
    annotations = {
        NODE_ANNOTATION: start.node,
        GENERATION_ANNOTATION: str(tuning.generation),
        TRY_ANNOTATION: str(start.attempt),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(tuning.name, tuning.uid, tuning.generation, start.node, start.attempt),
            "namespace": tuning.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": lasts_s(tuning.minutes),
            "ttlSecondsAfterFinished": KEEP_S,
            "template": {
                "metadata": {"labels": labels, "annotations": dict(_ANNOTATIONS)},
                "spec": _pod_spec(wanted, settings),
            },
        },
    }


def _pod_spec(wanted: Wanted, settings: Settings) -> dict[str, Any]:
    template, server = wanted.template, wanted.tuning.server
    measured = {name: template.container[name] for name in _OF_CONTAINER if name in template.container}
    measured |= {"restartPolicy": "Always", "command": [*map(_escaped, settings.command)]}
    # With the tuner the pod has the QoS class of the workload's pods: a Guaranteed one may get exclusive CPUs.
    requests = LIMITS if template.guaranteed else _REQUESTS
    tuner: dict[str, Any] = {
        "name": TUNER,
        "image": settings.image,
        "args": [TUNER],
        "resources": {"requests": requests, "limits": LIMITS},
        "securityContext": _tuners_security(template),
        "volumeMounts": [],
    }
    before = list(_fillers(template))
    writable = _writable(template)
    for container in (measured, *before):
        container["volumeMounts"] = [
            {**mount, **({} if mount["name"] in writable else {"readOnly": True})}
            for mount in container.get("volumeMounts") or ()
        ]
    spec: dict[str, Any] = {
        **{name: template.spec[name] for name in _OF_POD if name in template.spec},
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "affinity": _pinned(wanted.start.node),
        "initContainers": [*before, measured],
        "containers": [tuner],
        "volumes": list(_volumes(template, [measured, *before])),
    }
    _add_shim(spec, wanted, settings)
    tuner["env"] = [{"name": "RADDLE_TUNING", "value": _escaped(json.dumps(_given(wanted, measured)))}]
    shared = {"name": _FOLDER_VOLUME, "mountPath": FOLDER}
    spec["volumes"].append({"name": _FOLDER_VOLUME, "emptyDir": {"sizeLimit": _FOLDER_SIZE}})
    measured["volumeMounts"] = [*measured.get("volumeMounts", ()), shared]
    tuner["volumeMounts"].append(shared)
    if server is not None and server.config_map:
        items = [{"key": server.key, "path": server.key}]
        # Where it is missing the tuner says so, instead of a pod that never starts.
        result = {"name": server.config_map, "items": items, "optional": True}
        spec["volumes"].append({"name": _REQUEST_VOLUME, "configMap": result})
        tuner["volumeMounts"].append({"name": _REQUEST_VOLUME, "mountPath": REQUEST_FOLDER, "readOnly": True})
    return spec


def _tuners_security(template: Template) -> dict[str, Any]:
    """The tuner's security context. It has the measured container's user, else the pod's, else its image's: no root."""
    theirs = template.container.get("securityContext") or {}
    user = theirs.get("runAsUser", (template.spec.get("securityContext") or {}).get("runAsUser"))
    result = {"seccompProfile": {"type": "RuntimeDefault"}, **_narrow(theirs)}
    return result if user == 0 else {**result, "runAsNonRoot": True}


def _narrow(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """A container's security context without any right that the tuner does not need."""
    shared = {name: theirs[name] for name in _SHARED_SECURITY if name in theirs}
    return {**shared, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _escaped(text: str) -> str:
    """The text as the kubelet gives it to a container: it makes `$` of `$$`, and replaces `$(NAME)`."""
    return text.replace("$", "$$")


def _given(wanted: Wanted, measured: Mapping[str, Any]) -> dict[str, Any]:
    """All that the tuner is told: of the container what the template says, with the shim's mounts."""
    tuning, winner = wanted.tuning, wanted.start.winner
    container = counted(wanted.template, wanted.reserve_cpus)
    metadata = {"namespace": tuning.namespace, "name": tuning.name, "uid": tuning.uid, "generation": tuning.generation}
    digest = str(container.get("image") or "").partition("@")[2]
    return {
        "tuning": {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": wanted.obj["spec"]},
        "container": {**container, "volumeMounts": measured.get("volumeMounts", [])},
        "policy": wanted.policy,
        "confirm": None if winner is None else dict(winner.settings),
        "guaranteed": wanted.template.guaranteed,
        "image": digest if digest.startswith("sha256:") else "",
    }


def _pinned(node: str) -> dict[str, Any]:
    """To the one node. What else the template's affinity asks was looked at when the node was chosen."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _mounted(container: Mapping[str, Any]) -> set[str]:
    """The names of the volumes that a container uses."""
    return {one["name"] for field in ("volumeMounts", "volumeDevices") for one in container.get(field) or ()}


def _writable(template: Template) -> set[str]:
    """The volumes of which this pod has one of its own, and which go with it: nothing of the workload's is written."""
    own = ("emptyDir", "ephemeral")
    result = {one["name"] for one in template.spec.get("volumes") or () if any(kind in one for kind in own)}
    return result | template.claims


def _fillers(template: Template) -> Iterator[dict[str, Any]]:
    """Yields the init containers that fill a volume for the measured one, such as with its model."""
    mounted = _mounted(template.container)
    empty = {one["name"] for one in template.spec.get("volumes") or () if "emptyDir" in one}
    for container in template.spec.get("initContainers") or ():
        if container.get("restartPolicy") != "Always" and _mounted(container) & mounted & empty:
            yield {**container}


def _volumes(template: Template, containers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the volumes that these containers use, claims read-only where the field is, which some drivers want."""
    mounted = set().union(*map(_mounted, containers))
    for volume in template.spec.get("volumes") or ():
        if volume["name"] not in mounted:
            continue
        if "persistentVolumeClaim" in volume:
            yield {**volume, "persistentVolumeClaim": {**volume["persistentVolumeClaim"], "readOnly": True}}
        elif "projected" in volume:
            sources = [one for one in volume["projected"].get("sources") or () if "serviceAccountToken" not in one]
            yield {**volume, "projected": {**volume["projected"], "sources": sources}}
        else:
            yield {**volume}
    for name in sorted(template.claims & mounted):
        # Which of the replicas' would it be?
        yield {"name": name, "emptyDir": {}}


def _add_shim(spec: dict[str, Any], wanted: Wanted, settings: Settings) -> None:
    """Gives the measured container the shim's files as the workload's pods get them."""
    if wanted.shim == "None":
        return
    pod = pod_from_object({"metadata": {"labels": dict(wanted.template.labels)}, "spec": spec})
    volume = door.opened(pod, wanted.architecture, wanted.delivery, config_map_present=True, switch=settings.door)
    if isinstance(volume, Skip) or door.occupied(pod.init_containers[-1]):
        return
    spec["volumes"].append(dict(volume))
    measured = spec["initContainers"][-1]
    measured["volumeMounts"] = [*measured.get("volumeMounts", ()), *map(dict, volumes.SHIM_MOUNTS)]
