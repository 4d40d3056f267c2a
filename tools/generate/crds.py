"""Makes crds/clusterinferencethreadings.yaml from crds/inferencethreadings.yaml.

The two policy kinds share one spec; the cluster kind adds `namespaceSelector` and `tier`. The namespaced one is
written by hand, the other is made from it, so that they can't drift apart. `make generate` runs this,
tests/contract/test_crd.py checks that the result is current.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "crds" / "inferencethreadings.yaml"
TARGET = REPOSITORY / "crds" / "clusterinferencethreadings.yaml"

HEADER = """\
# Made by `make generate` (tools/generate/crds.py) from crds/inferencethreadings.yaml: edit that file, not this one.
# The cluster kind has the same spec, and adds namespaceSelector and tier.
"""

DESCRIPTION = (
    "ClusterInferenceThreading is an InferenceThreading for the whole cluster: it gives the inference containers of "
    "the selected pods thread counts, spinning and CPU placement that fit the node's real CPUs and the container's "
    "real limits, in every namespace that namespaceSelector selects, on pods that are opted in (label "
    "raddle.dev/inject on the namespace). Of all policies that select a pod exactly one governs it; policies do not "
    "merge. A field that is absent is decided by Raddle."
)

TIER = {
    "description": (
        "Where the policy stands beside others. Admin: before every policy of the pod's namespace, which can't change "
        "what it says. Baseline: after them, for pods that no other policy governs."
    ),
    "type": "string",
    "enum": ["Admin", "Baseline"],
    "default": "Baseline",
}

TIER_COLUMN = {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"}


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, as the hand-written CRDs have it; no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (PyYAML's signature)
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (PyYAML's signature)
        return True


def cluster_kind(namespaced: dict[str, Any]) -> dict[str, Any]:
    """The CRD of ClusterInferenceThreading, as a mapping, from that of InferenceThreading, which stays as it is."""
    crd = copy.deepcopy(namespaced)
    names = crd["spec"]["names"]
    plural = "cluster" + names["plural"]
    crd["metadata"]["name"] = f"{plural}.{crd['spec']['group']}"
    crd["spec"]["scope"] = "Cluster"
    names |= {
        "kind": "Cluster" + names["kind"],
        "listKind": "Cluster" + names["listKind"],
        "plural": plural,
        "singular": "cluster" + names["singular"],
        "shortNames": ["c" + name for name in names["shortNames"]],
    }
    (version,) = crd["spec"]["versions"]
    version["additionalPrinterColumns"].insert(0, TIER_COLUMN)
    schema = version["schema"]["openAPIV3Schema"]
    schema["description"] = DESCRIPTION
    spec = schema["properties"]["spec"]
    own: dict[str, Any] = {}
    for field, value in spec["properties"].items():
        own[field] = value
        if field == "podSelector":
            own["namespaceSelector"] = _namespace_selector(value)
            own["tier"] = TIER
    spec["properties"] = own
    return crd


def _namespace_selector(pod_selector: dict[str, Any]) -> dict[str, Any]:
    selector = copy.deepcopy(pod_selector)
    selector["description"] = (
        "The namespaces whose pods this policy may govern, by the namespaces' labels. Absent or {} selects every "
        "namespace that is opted in. matchLabels and matchExpressions are ANDed."
    )
    selector["default"] = {}
    properties = selector["properties"]
    properties["matchLabels"]["description"] = (
        "Labels that a namespace must have, with exactly these values. Absent or {} asks for none."
    )
    properties["matchExpressions"]["description"] = (
        "Requirements on labels, all of which a namespace must meet. Absent or [] asks for none."
    )
    return selector


def render(namespaced_text: str) -> str:
    """The text of crds/clusterinferencethreadings.yaml for the text of crds/inferencethreadings.yaml."""
    crd = cluster_kind(yaml.safe_load(namespaced_text))
    text: str = yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
    # The hints that name the namespaced kind's fields.
    return HEADER + text.replace("explain inferencethreading.", "explain clusterinferencethreading.")


def main() -> int:
    """Write the file; 0 always, since writing what is there already is no error."""
    TARGET.write_text(render(SOURCE.read_text()))
    print(f"wrote {TARGET.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
