"""The CRDs and the code say the same: fields, words, bounds and defaults."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from generate import crds
from raddle.planning import families, policy

# Fields of the spec that decide who is governed or what is reported, but no number: raddle.planning.policy doesn't read them.
NOT_PLANNED_WITH = {"podSelector", "namespaceSelector", "tier", "containers", "priority", "mode"}
BUILT_IN = ("podSelector", "namespaceSelector", "onnxruntime.configEntries", "onnxruntime.providerOptions")


def spec_schema(kind: str) -> dict[str, Any]:
    (version,) = crds.read(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The leaves of a spec as (dotted path, schema); selectors and maps count as leaves."""
    for name, field in schema["properties"].items():
        dotted = f"{path}{name}"
        if "properties" in field and dotted not in BUILT_IN:
            yield from fields(field, f"{dotted}.")
        else:
            yield dotted, field


def with_field(path: str, value: Any) -> dict[str, Any]:
    """A spec with one field set."""
    spec: dict[str, Any] = {}
    inner = spec
    *parents, last = path.split(".")
    for step in parents:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return spec


def companions(path: str) -> dict[str, Any]:
    """What else has to be set for any value of this field to make sense."""
    return {"executionMode": "Parallel"} if path == "threads.interOp" else {}


KINDS = ("inferencethreadings", "clusterinferencethreadings")
POLICY_FIELDS = dict(fields(spec_schema("inferencethreadings")))
PLANNED = [path for path in POLICY_FIELDS if path not in NOT_PLANNED_WITH]
READ_BY_POLICY = {field.path: name for name, field in policy.FIELDS.items()}


def test_every_field_that_decides_a_number_is_read_and_no_other():
    assert set(READ_BY_POLICY) == set(PLANNED)


@pytest.mark.parametrize("path", ["onnxruntime.configEntries", "onnxruntime.providerOptions"])
def test_the_rules_name_what_the_planner_reads(path):
    """tests/integration/test_crds.py tries every key at its bounds."""
    table = policy.FIELDS[READ_BY_POLICY[path]].allowed
    named = quoted(POLICY_FIELDS[path]["x-kubernetes-validations"])
    assert set(table) <= named
    for provider in table.values():
        assert set(getattr(provider, "options", ())) <= named


def quoted(rules: list[dict[str, Any]]) -> set[str]:
    """The texts in the rules' lists."""
    return {word for rule in rules for word in re.findall(r"'([^']*)'", rule["rule"])}


@pytest.mark.parametrize("path", PLANNED)
def test_a_default_of_the_schema_is_the_planners_default(path):
    """Where the schema has none, absent and the planner's default mean the same."""
    default = getattr(policy.Policy(), READ_BY_POLICY[path])
    if "default" in POLICY_FIELDS[path]:
        filled_in = POLICY_FIELDS[path]["default"]
        assert (tuple(filled_in) if isinstance(filled_in, list) else filled_in) == default
    else:
        assert path in {"budget.concurrentRuns", "load.source", "runtimes"} or default in (None, ())


def test_what_the_api_server_fills_in_reads_as_the_default_policy():
    def filled_in(schema: dict[str, Any]) -> Any:
        if "properties" not in schema:
            return schema["default"]
        return {
            name: filled_in(field)
            for name, field in schema["properties"].items()
            if "default" in field and name != "namespaceSelector"
        }

    assert policy.parse(filled_in(spec_schema("inferencethreadings"))) == policy.Policy()


@pytest.mark.parametrize("path", [path for path in PLANNED if "minimum" in POLICY_FIELDS[path]])
def test_the_planner_refuses_numbers_just_outside_the_schemas_bounds(path):
    field = POLICY_FIELDS[path]
    wrong = (1.5,) if field["type"] == "integer" else (0,)
    for value in (field["minimum"] - 1, field["maximum"] + 1, True, "4", *wrong):
        spec = with_field(path, value)
        spec.setdefault(path.split(".", maxsplit=1)[0], {}).update(companions(path))
        with pytest.raises(policy.PolicyError) as refused:
            policy.parse(spec)
        assert refused.value.path == path


@pytest.mark.parametrize("path", [path for path in PLANNED if POLICY_FIELDS[path]["type"] == "boolean"])
def test_the_planner_takes_booleans_for_switches_and_nothing_else(path):
    for value in (True, False):
        assert getattr(policy.parse(with_field(path, value)), READ_BY_POLICY[path]) is value
    for value in (0, 1, "true", []):
        with pytest.raises(policy.PolicyError) as refused:
            policy.parse(with_field(path, value))
        assert refused.value.path == path


def test_a_policy_that_names_no_runtimes_gets_those_that_the_description_says():
    described = POLICY_FIELDS["runtimes"]["description"].partition("Absent: ")[2].partition(".")[0]
    assert {word for word in families.NAMES if re.search(rf"\b{word}\b", described)} == set(families.DEFAULT)


def test_every_field_has_an_effect():
    assert not [path for path, field in POLICY_FIELDS.items() if "No effect in this version" in field["description"]]


def test_the_cluster_kind_adds_a_namespace_selector_and_a_tier_and_nothing_else():
    namespaced, cluster = map(spec_schema, KINDS)
    added = {name: cluster["properties"].pop(name) for name in ("namespaceSelector", "tier")}
    # The hints name the kind.
    text = yaml.safe_dump(cluster).replace("clusterinferencethreading", "inferencethreading")
    assert yaml.safe_load(text) == yaml.safe_load(yaml.safe_dump(namespaced))
    assert added["tier"]["enum"] == ["Admin", "Baseline"]
    assert added["namespaceSelector"]["default"] == {}


def test_making_the_cluster_kind_leaves_its_source_alone():
    source = crds.namespaced_kind()
    before = copy.deepcopy(source)
    crds.cluster_kind(source)
    assert source == before


@pytest.mark.parametrize(
    ("stem", "kind", "scope", "short"),
    [
        ("inferencethreadings", "InferenceThreading", "Namespaced", "ift"),
        ("clusterinferencethreadings", "ClusterInferenceThreading", "Cluster", "cift"),
        ("nodecputopologies", "NodeCPUTopology", "Cluster", "nct"),
        ("inferencetunings", "InferenceTuning", "Namespaced", "itu"),
    ],
)
def test_names_are_those_of_the_contract(stem, kind, scope, short):
    crd = crds.read(stem)
    assert crd["metadata"]["name"] == f"{stem}.raddle.dev"
    assert crd["spec"]["group"] == "raddle.dev"
    assert crd["spec"]["scope"] == scope
    names = crd["spec"]["names"]
    assert (names["kind"], names["plural"], names["shortNames"], names["categories"]) == (
        kind,
        stem,
        [short],
        ["raddle"],
    )
    assert [(v["name"], v["served"], v["storage"]) for v in crd["spec"]["versions"]] == [("v1alpha1", True, True)]


def test_uninstalling_keeps_the_kinds_and_their_objects():
    for path in crds.FOLDER.glob("*.yaml"):
        assert crds.read(path.stem)["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
