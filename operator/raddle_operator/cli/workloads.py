"""What `raddle plan` reads of files: the policies in them, and the pods that their workloads would create."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raddle_operator.cli import manifests
from raddle_operator.cli.manifests import Manifest
from raddle_operator.objects import tuning
from raddle_operator.objects.pods import Pod, pod_from_object
from raddle_operator.objects.policy import PolicyObject, policy_from_object
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.quantities import parse as quantity
from raddle_operator.objects.reading import SpecError, as_object
from raddle_operator.objects.tuning import TuningResults

POLICY_KINDS: Final = ("InferenceThreading", "ClusterInferenceThreading")
# Kind -> where its pod template lies.
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload of the files: its pod as it would be created, and where it stands."""

    manifest: Manifest
    namespace: str
    pod: manifests.Object

    @property
    def title(self) -> str:
        """Kind/name as kubectl writes it."""
        return f"{self.manifest.kind.lower()}/{self.manifest.metadata.get('name', '?')}"


def read_policies(result: Sequence[Manifest]) -> Iterator[PolicyObject]:
    """Yields the policies among the manifests. Raises ManifestError for one that the API server would refuse."""
    for manifest in result:
        if manifest.kind not in POLICY_KINDS:
            continue
        from raddle_operator.cli import schema  # jsonschema takes a quarter of a start that reads no policy

        schema.check(manifest)
        obj = {**copy.deepcopy(manifest.obj), "metadata": {**manifest.metadata}}
        if manifest.kind == "InferenceThreading":
            obj["metadata"].setdefault("namespace", "default")
        try:
            yield policy_from_object(obj)
        except SpecError as error:
            raise manifest.error(error.path, error.message) from None


def read_tunings(result: Sequence[Manifest]) -> dict[tuple[str, str], TuningResults]:
    """What the tunings among the manifests have found, by namespace and name. Raises ManifestError as above."""
    read = {}
    for manifest in result:
        if manifest.kind != tuning.KIND:
            continue
        from raddle_operator.cli import schema

        schema.check(manifest)
        try:
            results = tuning.results_from_object(manifest.obj)
        except SpecError as error:
            raise manifest.error(error.path, error.message) from None
        read[str(manifest.metadata.get("namespace") or "default"), results.name] = results
    return read


def read_workloads(result: Sequence[Manifest]) -> Iterator[Workload]:
    """Yields the workloads among the manifests, each with the pod that its template makes.

    Raises ManifestError for a template that is no pod.
    """
    for manifest in result:
        steps = TEMPLATES.get(manifest.kind)
        if steps is None:
            continue
        template: Any = manifest.obj
        for step in steps:
            template = template.get(step) if isinstance(template, dict) else None
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            raise manifest.error(".".join([*steps, "spec"]), "is missing or no mapping; there is no pod to plan for")
        metadata = manifest.metadata
        namespace = str(metadata.get("namespace") or "default")
        try:
            own = {**as_object(template.get("metadata") or {}, "metadata"), "namespace": namespace}
            own.setdefault("name", f"{metadata.get('name', 'pod')}{'-0' if steps else ''}")
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template["spec"]}
            _check_quantities(pod_from_object(pod))
        except SpecError as error:
            raise manifest.error(".".join([*steps, error.path]), error.message) from None
        yield Workload(manifest=manifest, namespace=namespace, pod=copy.deepcopy(pod))


def _check_quantities(pod: Pod) -> None:
    """Raises SpecError for the first CPU or memory quantity that can't be read."""
    for container in pod.containers + pod.init_containers:
        path = f"spec.{container.field}[{container.place}].resources"
        for part, quantities in (("limits", container.limits), ("requests", container.requests)):
            for name in ("cpu", "memory"):
                try:
                    if quantities.get(name) is not None:
                        quantity(quantities[name])
                except QuantityError as error:
                    raise SpecError(f"{path}.{part}.{name}", str(error)) from None
