"""The programs of a command line are read as a shell and the usual wrappers would start them."""

import pytest

from raddle_operator.objects.commands import MAX_WORDS, programs, words


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
        (["python", "serve.py", "-m", "vllm"], {"serve.py"}),
        (["python3", "/usr/local/bin/vllm", "serve"], {"vllm"}),
        (["/bin/bash", "-c", "--", "ulimit -n 65536; ray start --head"], {"ulimit", "ray"}),
        (["sh", "-ce", "if true; then vllm serve; fi"], {"true", "vllm", "fi"}),
        (["/entrypoint.sh", "vllm", "serve"], {"vllm"}),
        (["sudo", "-u", "me", "vllm"], {"vllm"}),
        (["env", "-u", "X", "vllm"], {"vllm"}),
        (["sh", "-c", "exec -a x vllm"], {"vllm"}),
        (["conda", "run", "-n", "env1", "vllm"], {"vllm"}),
        (["conda", "run", "--no-capture-output", "-n", "vllm", "python", "x.py"], {"x.py"}),
        (["uv", "run", "--with", "vllm", "python", "a.py"], {"a.py"}),
        (["python", "-m"], set()),
        (["bash", "start.sh", "vllm"], set()),
        (["bash"], set()),
        (["bash", "-c"], set()),
        (["/bin/bash", "-lc", "--", "ulimit -n 65536; ray start --block"], {"ulimit", "ray"}),
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
    assert len(programs(arguments)) <= 64
    assert len(words(arguments)) <= MAX_WORDS
