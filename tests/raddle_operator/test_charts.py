"""Manifests as the servers' own charts and documents render them: `raddle plan` knows each, and what it gets."""

from pathlib import Path

import pytest

from raddle import env
from raddle_operator.cli import manifests, offline, plan, workloads
from raddle_operator.injection.matching import Policies
from raddle_operator.presets.rows import presets

CHARTS = Path(__file__).parent / "charts"
EXAMPLES = Path(__file__).parents[2] / "examples"


def planned(chart):
    """Workload -> the documented JSON of its only planned container, by the example that has the chart's name."""
    policies = Policies(list(workloads.read_policies(manifests.load([str(EXAMPLES / chart)]))))
    found = workloads.read_workloads(manifests.load([str(CHARTS / chart)]))
    opted_in = {env.INJECT_LABEL: "enabled"}
    all_of_it = {one.title: plan.as_json(offline.decide(one, policies, opted_in, None, None)) for one in found}
    return {title: one["containers"][0] for title, one in all_of_it.items() if len(one["containers"]) == 1}


# Chart, workload, preset, and what its container gets by the preset and the example: literals, or count of a plan.
ROWS = [
    ("docling", "deployment/docling-serve", "docling-serve", {"DOCLING_NUM_THREADS": "2"}),
    (
        "immich",
        "deployment/immich-machine-learning",
        "immich-machine-learning",
        {
            "MACHINE_LEARNING_MODEL_INTRA_OP_THREADS": "4",
            "MACHINE_LEARNING_MODEL_INTER_OP_THREADS": "1",
            "MACHINE_LEARNING_REQUEST_THREADS": "4",
        },
    ),
    ("kserve", "deployment/iris-predictor", "kserve", {"PYTHON_CPU_COUNT": "4"}),
    ("kserve", "deployment/trees-predictor", "kserve", {"PYTHON_CPU_COUNT": "4"}),
    ("kserve", "deployment/boost-predictor", "kserve", {"PYTHON_CPU_COUNT": "4"}),
    ("llama-cpp", "deployment/llama-server", "llama.cpp", {"LLAMA_ARG_THREADS": "4"}),
    ("localai", "deployment/local-ai", "localai", {"LOCALAI_THREADS": "8"}),
    ("ollama", "deployment/ollama", "ollama", {"LLAMA_ARG_THREADS": "4"}),
    ("ray", "pod/rayservice-sample-small-group-worker", "ray", {}),
    ("speaches", "deployment/speaches", "speaches", {"WHISPER__CPU_THREADS": "4"}),
    ("text-embeddings", "deployment/tei", "text-embeddings-inference", {"TOKENIZATION_WORKERS": "4"}),
    ("triton", "deployment/example-triton-inference-server", "triton", {}),
    ("vllm-cpu", "deployment/vllm-llama3-deployment-vllm", "vllm-cpu", None),
    ("vllm-gpu", "deployment/vllm-llama3-deployment-vllm", "gpu-server", {"RAYON_NUM_THREADS": "8"}),
]


@pytest.mark.parametrize(("chart", "workload", "preset", "literals"), ROWS, ids=lambda value: str(value)[:40])
def test_a_charts_manifest_is_recognised_and_gets_what_its_preset_says(chart, workload, preset, literals):
    container = planned(f"{chart}.yaml")[workload]
    assert container["preset"] == preset
    (row,) = (one for one in presets() if one.name == preset)
    if literals is None:
        assert container["skipped"]["reason"] == "ManagedByServer"
        assert all(f"{name}={value}" in container["skipped"]["detail"] for name, value in row.unless.items())
        return
    assert container["skipped"] is None
    assert {name: container["literals"][name] for name in literals} == literals
    assert row.variables.keys() <= literals.keys()
    assert container["advice"] == row.advice


def test_every_chart_is_in_the_table_with_all_its_workloads():
    rendered = {(path.stem, workload) for path in CHARTS.glob("*.yaml") for workload in planned(path.name)}
    assert rendered == {(chart, workload) for chart, workload, *_ in ROWS}


def test_processes_and_instances_of_an_example_share_the_cpus():
    for chart in ("ray", "triton", "docling"):
        (container,) = planned(f"{chart}.yaml").values()
        assert container["values"]["intraOp"] == 2
