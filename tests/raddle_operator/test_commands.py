"""The programs of a command line are read as a shell and the usual wrappers would start them."""

from __future__ import annotations

import pytest

from raddle_operator.objects.commands import MAX_ARGUMENT, MAX_WORDS, programs, words


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], set()),
        (["ollama", "serve"], {"ollama"}),
        (["/usr/local/bin/llama-server", "-m", "model.gguf"], {"llama-server"}),
        (["sh", "-c", "exec llama-server -m model.gguf"], {"llama-server"}),
        (["/bin/bash", "-ec", "cd /app && LLAMA=1 llama-server; echo done"], {"cd", "llama-server", "echo"}),
        (["tini", "--", "sh", "-c", "vllm serve model | tee log"], {"vllm", "tee"}),
        (["env", "A=1", "numactl", "--localalloc", "tritonserver"], {"tritonserver"}),
        (["nice", "-n", "10", "ovms"], {"ovms"}),
        (["taskset", "0-3", "ovms"], {"ovms"}),
        (["gosu", "app", "ovms"], {"ovms"}),
        (["uv", "run", "bentoml", "serve"], {"bentoml"}),
        (["python3.11", "-m", "vllm.entrypoints.openai.api_server"], None),
        (["python", "-u", "-X", "dev", "-m", "llama_cpp.server"], {"llama_cpp", "llama_cpp.server"}),
        (["python", "serve.py", "-m", "vllm"], set()),
        (["python", "-m"], set()),
        (["bash", "start.sh", "vllm"], set()),
        (["bash"], set()),
        (["sh", "-c", "sh -c 'vllm serve'"], {"vllm"}),
        (["echo", "ray", "vllm"], {"echo"}),
        (["env"], set()),
    ],
)
def test_programs_are_what_is_started_and_no_word_beside_it(arguments, found):
    if found is None:
        found = {"vllm", "vllm.entrypoints", "vllm.entrypoints.openai", "vllm.entrypoints.openai.api_server"}
    assert programs(arguments) - {""} == found


@pytest.mark.parametrize(
    "arguments",
    [
        ["x"] * 100_000,
        ["sh", "-c", "a && " * 100_000],
        ["python", "-m", "a." * 100_000],
        ["sh", "-c"] * 50_000,
        ["A=" * 100_000],
    ],
    ids=["words", "script", "module", "shells", "assignment"],
)
def test_a_long_command_line_is_read_in_bounds(arguments):
    assert len(programs(arguments)) <= MAX_ARGUMENT
    assert len(words(arguments)) <= MAX_WORDS
