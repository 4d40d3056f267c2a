"""What the workloads of manifests would make on a node, before there is any pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raddle import env
from raddle_operator.cli import manifests, offline, workloads
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.scan.reading import Scanned
from raddle_operator.injection.matching import Policies
from raddle_operator.scanning.assess import Cluster, Node, assess
from raddle_operator.scanning.rows import Gathered


def scan(sources: Sequence[str], namespace: str, cpus: int) -> Scanned:
    """What is found in the files, of the namespace ("": of all), on nodes of so many CPUs. Raises ManifestError.

    Their policies govern, as in `raddle plan`: a namespace that is not among the files counts as opted in.
    """
    result = manifests.load(sources)
    there = list(workloads.read_workloads(result))
    if not there:
        raise ManifestError(f"the files hold no workload: {', '.join(workloads.TEMPLATES)}")
    labels: dict[str, Any] = {one.namespace: {env.INJECT_LABEL: "enabled"} for one in there}
    labels |= {
        str(one.metadata.get("name")): one.metadata.get("labels") or {} for one in result if one.kind == "Namespace"
    }
    cluster = Cluster(
        policies=Policies(list(workloads.read_policies(result))),
        namespaces=labels,
        nodes={},
        assumed=Node(cpus),
        created=False,
    )
    gathered = Gathered()
    for one in there:
        if namespace in ("", one.namespace):
            gathered.add(assess(offline.owned(one), cluster), _replicas(one.manifest.obj))
    return Scanned(gathered, (f"nodes of {cpus} CPUs are assumed (--cpus); nothing is measured",))


def _replicas(obj: manifests.Object) -> int:
    spec = obj.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    return replicas if isinstance(replicas, int) and replicas > 0 else 1
