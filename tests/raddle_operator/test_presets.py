"""Known servers are recognised by whole names, and get what their row says; the policy and the pod spec count before it."""

import pytest
from support.injections import decide, inject

from assembling import regular
from cluster import objects
from raddle_operator.injection.binding import BindingOutcome, rebind
from raddle_operator.injection.decide import MAX_PLANNED_CONTAINERS
from raddle_operator.objects.policy import pod_from_object, policy_from_object
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.presets.matching import applied, find
from raddle_operator.presets.rows import presets

GPU = {"limits": {"cpu": "8", "nvidia.com/gpu": "1"}}


def container(image="registry.test/team/app:1", **parts):
    return {**objects.container("serve", cpu="4"), "image": image, **parts}


def read(obj):
    return pod_from_object(objects.pod(obj)).containers[0]


def variables(obj, spec=None):
    patched, decision = inject(objects.pod(obj), spec)
    values = {one["name"]: one.get("value") for one in patched["spec"]["containers"][0].get("env", [])}
    # What a shim completes counts as set.
    listed = (part.partition("=") for part in values.get("RADDLE_LITERALS", "").split(";"))
    return {**{name: value for name, _, value in listed if value}, **values}, decision


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (container("ollama/ollama:0.32.0"), "ollama"),
        (container("registry.test:5000/mirror/ollama/ollama@sha256:" + "0" * 64), "ollama"),
        (container("ollama"), None),
        (container("mirror.test/ai/vllm-openai:v1", args=["--model", "m"]), "vllm-cpu"),
        (container("nvcr.test/nvidia/vllm:26.01", resources=GPU), "gpu-server"),
        (container("vllm/vllm-openai:v0.12", resources={"limits": {"nvidia.com/gpu": "0"}}), "vllm-cpu"),
        (container("anyscale.test/ray-llm:2"), "ray"),
        (container(command=["/bin/bash", "-c", "--"], args=["ulimit -n 65536; ray start --head"]), "ray"),
        (container("registry.test/ollama"), None),
        (container(command=["/bin/sh", "-c", "exec ollama serve"]), "ollama"),
        (container(args=["llama-server", "-m", "model.gguf"]), "llama.cpp"),
        (container(command=["cat", "llama-server"]), None),
        (container("vllm/vllm-openai:v0.12"), "vllm-cpu"),
        (container("vllm/vllm-openai:v0.12", resources=GPU), "gpu-server"),
        (container(command=["python", "-m", "vllm.entrypoints.openai.api_server"]), "vllm-cpu"),
        (container(command=["torchrun", "train.py"]), "torchrun"),
        (container(command=["python", "-m", "torch.distributed.run", "train.py"]), "torchrun"),
        (container("team/ray-tracer:1", command=["python", "ray.py"]), None),
        (container("team/app", command=["python", "app.py", "ray", "vespa", "spark", "model_server"]), None),
        (container("nvcr.test/nvidia/tritonserver:25.10-py3"), "triton"),
        (container("nvcr.test/nvidia/tritonserver:25.10-py3", resources=GPU), "triton"),
        (container("", command=[]), None),
        (container("a/" * 1000), None),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value),
)
def test_a_server_is_recognised_by_image_or_program(obj, name):
    found = find(read(obj))
    assert (found.name if found else None) == name


@pytest.mark.parametrize("row", presets(), ids=lambda row: row.name)
def test_every_row_is_found_by_each_of_its_names_and_its_policy_can_be_written(row):
    resources = GPU if row.accelerator else {}
    for image in row.images:
        assert row.name in _names(container(f"registry.test/{image}:1", resources=resources))
    for command in row.commands:
        module = ["python", "-m", command] if "." in command else [command]
        assert row.name in _names(container(command=module, resources=resources))
    policy = policy_from_object(objects.policy("fast", "ns"))
    found, kept = applied(row, policy, read(container()))
    assert dict(found.variables) == dict(row.variables)
    assert found.runtimes == (row.runtimes or policy.policy.runtimes)
    assert kept == ()


def _names(obj):
    found = find(read(obj))
    return () if found is None else (found.name,)


def test_a_server_gets_its_rows_variables():
    set_here, decision = variables(container("ollama/ollama:0.32"))
    assert set_here["LLAMA_ARG_THREADS"] == str(decision.containers[0].plan.intra_op)
    assert decision.containers[0].preset.name == "ollama"


@pytest.mark.parametrize(
    ("parts", "spec", "value"),
    [
        ({"env": [{"name": "LLAMA_ARG_THREADS", "value": "7"}]}, {}, "7"),
        ({"env": [{"name": "LLAMA_ARG_THREADS", "value": "7"}]}, {"existingValues": "Override"}, "4"),
        ({}, {"variables": {"LLAMA_ARG_THREADS": "3"}}, "3"),
        ({}, {"presets": "Never"}, None),
        ({"args": ["serve", "--threads", "5"]}, {}, None),
        ({"args": ["serve", "--threads=5"]}, {}, None),
    ],
    ids=["pod spec", "override", "policy", "no presets", "flag", "flag and value"],
)
def test_the_pod_spec_the_policy_and_flags_count_before_a_row(parts, spec, value):
    set_here, _ = variables(container("ggml-org/llama.cpp:server", **parts), spec)
    assert set_here.get("LLAMA_ARG_THREADS") == value


@pytest.mark.parametrize(("spec", "value"), [({}, None), ({"existingValues": "Override"}, "4")])
def test_an_older_name_of_a_variable_in_the_pod_spec_stays_too(spec, value):
    set_here, decision = variables(container("localai/localai", env=[{"name": "THREADS", "value": "7"}]), spec)
    assert set_here["THREADS"] == "7"
    assert set_here.get("LOCALAI_THREADS") == value
    assert ("THREADS" in decision.containers[0].kept) == (value is None)


@pytest.mark.parametrize(("env", "own"), [([], "4"), ([{"name": "OMP_NUM_THREADS", "value": "7"}], None)])
def test_a_variable_that_would_beat_the_pod_specs_openmp_is_left_out_and_raddles_own_openmp_is_not_taken_for_it(
    env, own
):
    assert variables(container("docling-project/docling-serve", env=env))[0].get("DOCLING_NUM_THREADS") == own


def test_a_flag_that_beats_a_variable_is_said():
    _, decision = variables(container("ggml-org/llama.cpp:server", args=["-t", "5"]))
    assert "-t" in decision.containers[0].kept


def test_a_plan_with_as_many_variables_as_there_can_be_is_read_again_at_binding():
    names = {f"{'X' * 40}{n}_THREADS"[-48:]: "{threads}" for n in range(8)}
    patched, decision = inject(objects.pod(container("immich-app/immich-machine-learning:v2")), {"variables": names})
    rebound = rebind(patched["metadata"]["annotations"], "node-1", regular(16, 2))
    assert decision.injected
    assert rebound.outcome is BindingOutcome.NODE_SPECIFIC, rebound.detail


def test_families_of_a_row_stand_in_for_the_default_ones_only():
    rayon = "RAYON_NUM_THREADS"
    image = "huggingface/text-embeddings-inference:cpu-1.9"
    assert rayon in variables(container(image))[0]
    # Named as they are by default, they are the user's choice all the same.
    assert rayon not in variables(container(image), {"runtimes": ["onnxruntime", "torch", "openmp", "blas"]})[0]


@pytest.mark.parametrize(
    ("parts", "spec", "planned"),
    [
        ({}, {}, False),
        ({"env": [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"}]}, {}, True),
        ({"env": [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "auto"}]}, {}, False),
        ({}, {"containers": ["serve"]}, True),
        ({}, {"presets": "Never"}, True),
    ],
    ids=["stock", "told not to bind", "told to bind", "named", "no presets"],
)
def test_a_server_that_sizes_itself_is_left_alone_unless_it_is_told_not_to(parts, spec, planned):
    decision = decide(objects.pod(container("vllm/vllm-openai-cpu:v0.12", **parts)), spec)
    assert decision.injected == planned
    if not planned:
        assert decision.skip.reason is SkipReason.MANAGED_BY_SERVER
        assert "nobind" in decision.skip.detail


def test_a_gpu_servers_own_division_of_cpus_is_left_to_it():
    set_here, _ = variables(container("vllm/vllm-openai:v0.12", resources=GPU))
    assert set_here["RAYON_NUM_THREADS"] == "8"
    assert not {"OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"} & set(set_here)


def test_advice_on_processes_is_not_given_where_their_number_is_known():
    by_hand, told = (container(command=["gunicorn", *more, "app:app"]) for more in ((), ("-w", "2")))
    assert decide(objects.pod(by_hand)).containers[0].advice
    assert not decide(objects.pod(told)).containers[0].advice
    assert not decide(objects.pod(by_hand), {"budget": {"workersPerContainer": 2}}).containers[0].advice


def test_a_row_is_not_looked_for_in_containers_beyond_those_that_are_planned():
    many = [{**container("ollama/ollama:1"), "name": f"c{n}"} for n in range(MAX_PLANNED_CONTAINERS + 5)]
    decision = decide(objects.pod(*many))
    beyond = decision.containers[MAX_PLANNED_CONTAINERS:]
    assert {one.skip.reason for one in beyond} == {SkipReason.ANNOTATION_BUDGET}
    assert all(one.preset is None for one in beyond)
