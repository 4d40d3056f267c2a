"""A policy's own variables: numbers of the plan under names of counts, and never in the place of a reference."""

import pytest
from support.injections import inject, withheld

from cluster import objects
from raddle.planning.kinds import PolicyError
from raddle.planning.policy import parse

SECRET = {"name": "SERVER_THREADS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
FROM = [{"secretRef": {"name": "s"}}]


def given(spec, *, door=True, **parts):
    """The container's variables by name, what RADDLE_LITERALS lists, and the decision."""
    patched, decision = inject(objects.pod(objects.container("serve", cpu="4", **parts)), spec, door=door)
    found = {one["name"]: one for one in patched["spec"]["containers"][0].get("env", [])}
    return found, found.get("RADDLE_LITERALS", {}).get("value", "").split(";"), decision


@pytest.mark.parametrize(
    ("template", "more", "value"),
    [
        ("{threads}", {}, "4"),
        ("{cpus}", {}, "4"),
        ("{cpus}", {"budget": {"workersPerContainer": 2}}, "2"),
        ("{workers}", {"budget": {"workersPerContainer": 2}}, "2"),
        ("{interOp}", {"threads": {"executionMode": "Parallel", "interOp": 2}}, "2"),
        ("{openmp}", {}, "4"),
        ("{spinning}", {}, "1"),
        ("{spinning}", {"threads": {"spinning": "Never"}}, "0"),
        ("12", {}, "12"),
    ],
)
def test_a_placeholder_stands_for_a_number_of_the_plan(template, more, value):
    found, listed, _ = given({"variables": {"SERVER_THREADS": template}, **more})
    assert found["SERVER_THREADS"]["value"] == value
    assert f"SERVER_THREADS={value}" in listed


@pytest.mark.parametrize("existing", ["Respect", "Override"])
def test_what_comes_from_a_reference_stays_whatever_the_policy_says(existing):
    found, _, decision = given({"variables": {"SERVER_THREADS": "1"}, "existingValues": existing}, env=[SECRET])
    assert found["SERVER_THREADS"] == SECRET
    assert "SERVER_THREADS" in decision.containers[0].kept


@pytest.mark.parametrize("existing", ["Respect", "Override"])
def test_what_env_from_may_bring_is_only_completed_where_a_process_lacks_it(existing):
    spec = {"variables": {"SERVER_THREADS": "1"}, "existingValues": existing}
    found, listed, _ = given(spec, envFrom=FROM)
    assert "SERVER_THREADS" not in found
    assert "SERVER_THREADS=1" in listed
    found, listed, decision = given(spec, door=False, envFrom=FROM)
    assert "SERVER_THREADS" not in found
    assert "SERVER_THREADS=1" not in listed
    assert any(reason == "EnvFromPresent" for reason, _ in withheld(decision)) or decision.skip is not None


REFUSED = {
    "no count": ({"SERVER_MODE": "1"}, "end like a count"),
    "a loader's": ({"LD_CPU_THREADS": "1"}, "no word of permissions"),
    "Raddle's": ({"RADDLE_THREADS": "1"}, "no word of permissions"),
    "rights": ({"WORKER_ALLOW_ROOT": "1"}, "no word of permissions"),
    "a switch": ({"DEBUG_WORKERS": "1"}, "no word of permissions"),
    **{name: ({name: "1"}, "a name: in capitals") for name in (*("UWSGI_WORKER_EXEC", "GOMP_CPU_AFFINITY",
     "OMP_PROC_BIND", "NUMBA_THREADING_LAYER", "TF_GPU_THREAD_MODE"), *("VLLM_CPU_OMP_THREADS_BIND",
     "PROMETHEUS_MULTIPROC_DIR", "WORKER_CLASS", "WORKER_HOST", "WORKER_PORTS"), *("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
     "UVICORN_LIMIT_CONCURRENCY", "POOLTOKENS", "USE_CPU", "OMP_THREAD_LIMIT"))},
    "small letters": ({"server_threads": "1"}, "in capitals"),
    "too long": ({"THREADS_" + "X" * 60: "1"}, "in capitals"),
    "a family's": ({"NUMBA_NUM_THREADS": "1"}, "set through runtimes, because a family has it: numba"),
    "a word for a value": ({"SERVER_THREADS": "auto"}, "one of {threads}"),
    "two placeholders": ({"SERVER_THREADS": "{threads}{cpus}"}, "one of {threads}"),
    "an empty value": ({"SERVER_THREADS": ""}, "one of {threads}"),
    "a large number": ({"SERVER_THREADS": "10000"}, "one of {threads}"),
    "a number without quotes": ({"SERVER_THREADS": 4}, "one of {threads}"),
    "too many": ({f"N{n}_THREADS": "1" for n in range(9)}, "at most 8"),
    "processes without their number": ({"WEB_CONCURRENCY": "{workers}"}, "with budget.workersPerContainer"),
    "no mapping": (["SERVER_THREADS"], "a mapping"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *("LLAMA_ARG_THREADS", "N_THREADS_BATCH", "BENTOML_NUM_THREAD", "WHISPER__CPU_THREADS", "MAX_CONCURRENCY"),
        *("TOKENIZATION_WORKERS", "DOCLING_SERVE_ENG_LOC_NUM_WORKERS", "OPENCV_FOR_THREADS_NUM", "OLLAMA_NUM_PARALLEL"),
        *("MACHINE_LEARNING_MODEL_INTRA_OP_THREADS", "GOMP_SPINCOUNT", "THREAD_POOL_SIZE", "CPU_COUNT", "N_JOBS"),
    ],
)
def test_names_that_programs_give_to_counts_may_be_defined(name):
    assert parse({"variables": {name: "{threads}"}}).variables == ((name, "{threads}"),)


@pytest.mark.parametrize("spec", [{"existingValues": "Override"}, {}])
@pytest.mark.parametrize("own", ["4", "8", ""])
def test_what_env_sets_beside_env_from_stays(spec, own):
    entry = {"name": "SERVER_THREADS", "value": own}
    found, _, _ = given({"variables": {"SERVER_THREADS": "{threads}"}, **spec}, env=[entry], envFrom=FROM)
    assert found["SERVER_THREADS"]["value"] == own


@pytest.mark.parametrize("case", REFUSED)
def test_a_variable_that_is_refused_says_what_may_be(case):
    variables, allowed = REFUSED[case]
    with pytest.raises(PolicyError, match="variables") as raised:
        parse({"variables": variables})
    assert allowed in raised.value.allowed
