"""Makes the CRDs of the two policy kinds, crds/{,cluster}inferencethreadings.yaml.

What their spec has of fields that decide a plan are the rows of raddle.planning.policy; all else is written by hand in
inferencethreading.yaml beside this file. The cluster kind has the same spec, and adds `namespaceSelector` and `tier`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from raddle.planning import entries, families, templates
from raddle.planning.policy import FIELDS

FRAME = Path(__file__).with_name("inferencethreading.yaml")
FOLDER = Path(__file__).parents[2] / "crds"

HEADER = """\
# Made by `make generate` (tools/generate/crds.py) from runtime/raddle/planning/policy.py, the table of its fields, and
# tools/generate/inferencethreading.yaml: edit those, not this file.
"""

DESCRIPTION = (
    "ClusterInferenceThreading is an InferenceThreading for the whole cluster. It sets thread counts, spinning and "
    "CPU placement of the inference containers in the selected pods, computed from the node's CPUs and the "
    "container's limits. It applies to pods that are opted in (label raddle.dev/inject on the namespace), in every "
    "namespace that namespaceSelector selects. If several policies select a pod, exactly one governs it; policies "
    "are not merged. Raddle decides fields that are absent."
)

TIER = {
    "description": (
        "Precedence over the policies of the pod's namespace. Admin: takes precedence over all of them. Baseline: "
        "governs only pods that none of them governs."
    ),
    "type": "string",
    "enum": ["Admin", "Baseline"],
    "default": "Baseline",
}

TIER_COLUMN = {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"}


class _Dumper(yaml.SafeDumper):
    """Lists indented, those of words on one line, long texts folded; no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (PyYAML's signature)
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (PyYAML's signature)
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = ">" if len(text) > 90 and " " in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    words = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def read(plural: str) -> dict[str, Any]:
    """The CRD of crds/ whose kind has this plural."""
    crd: dict[str, Any] = yaml.load((FOLDER / f"{plural}.yaml").read_text(), yaml.CSafeLoader)
    return crd


def namespaced() -> str:
    """The text of InferenceThreading's CRD."""
    return _render(namespaced_kind())


def cluster() -> str:
    """The text of ClusterInferenceThreading's CRD."""
    return _render(cluster_kind(namespaced_kind()))


def namespaced_kind() -> dict[str, Any]:
    """The CRD of InferenceThreading: the frame with the rows in it."""
    text = re.sub(r"\$\((\w+)\)", lambda result: _tables()[result[1]], FRAME.read_text())
    crd: dict[str, Any] = yaml.safe_load(text)
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for field in FIELDS.values():
        *groups, name = field.path.split(".")
        parent = spec
        for group in groups:
            parent = parent["properties"][group]
        default = {} if field.default is None else {"default": field.default}
        own = parent.setdefault("properties", {})
        own[name] = {"description": field.text, **field.schema, **default, **own.get(name, {})}
    _in_order(spec, [field.path.split(".") for field in FIELDS.values()])
    return crd


def _in_order(schema: dict[str, Any], paths: list[list[str]]) -> None:
    """Put a schema's properties into the order of the rows; what the frame alone has stays before them."""
    rows = list(dict.fromkeys(path[0] for path in paths))
    properties = schema["properties"]
    schema["properties"] = {name: properties[name] for name in [*(one for one in properties if one not in rows), *rows]}
    for name in rows:
        if below := [path[1:] for path in paths if path[0] == name and path[1:]]:
            _in_order(properties[name], below)


def _tables() -> dict[str, str]:
    """What stands in the frame for the tables of entries: lists in CEL, and names for people."""
    config, providers = entries.CONFIG_ENTRIES, entries.PROVIDERS
    options = {name: entry for provider in providers.values() for name, entry in provider.options.items()}
    *firsts, last = ((name, f"[{_quoted(provider.options)}]") for name, provider in providers.items())
    return {
        "entries": _quoted(config),
        "switches": _quoted(_switches(config)),
        "switchNames": ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in _switches(config))),
        "providers": _quoted(providers),
        "providerNames": " or ".join(providers),
        "options": "".join(f"p == '{name}' ? {allowed} : " for name, allowed in firsts) + last[1],
        "optionSwitches": _quoted(_switches(options)),
        "acknowledgedEntries": _quoted(_acknowledged(config)),
        "acknowledgedEntryNames": " and ".join(_acknowledged(config)),
        "acknowledgedOptions": _quoted(_acknowledged(options)),
        "variableName": templates.NAME,
        "variableCounted": templates.COUNTED,
        "variableRefused": templates.REFUSED,
        "variableNames": templates.listed()[0],
        "familyVariables": _quoted(sorted(families.VARIABLES)),
        "processVariables": _quoted(templates.OF_PROCESSES),
        "processVariableNames": ", ".join(templates.OF_PROCESSES),
        "acknowledgedOptionNames": " and ".join(_acknowledged(options)),
    }


def _switches(table: dict[str, entries.Entry]) -> list[str]:
    return [name for name, entry in table.items() if entry.allowed == entries.SWITCH]


def _acknowledged(table: dict[str, entries.Entry]) -> list[str]:
    return [name for name, entry in table.items() if entry.acknowledge]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def cluster_kind(namespaced: dict[str, Any]) -> dict[str, Any]:
    """The CRD of ClusterInferenceThreading, as a mapping, from that of InferenceThreading, which stays as it is."""
    # The hints name the kind's fields.
    crd: dict[str, Any] = json.loads(
        json.dumps(namespaced).replace("explain inferencethreading.", "explain clusterinferencethreading.")
    )
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
        "Labels that a namespace must have, with exactly these values. Absent or {} requires none."
    )
    properties["matchExpressions"]["description"] = (
        "Requirements on labels, all of which a namespace must meet. Absent or [] requires none."
    )
    return selector


def _render(crd: dict[str, Any]) -> str:
    text: str = yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
    return HEADER + text
