"""What runs in a container, as far as its command says: how many processes share the CPUs, and who binds its own.

A command line is read as words, also inside `sh -c "..."`; what a shell would compute stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raddle_operator.objects.pods import Container

MAX_WORKERS: Final = 1024
# A script passed as an argument is looked at this far, and a command as many words.
_MAX_ARGUMENT: Final = 4096
_MAX_WORDS: Final = 4096

# Server -> its flags for the number of worker processes.
_FLAGS: Final = {
    "gunicorn": ("--workers", "-w"),
    "uvicorn": ("--workers",),
    "hypercorn": ("--workers", "-w"),
    "granian": ("--workers",),
    "fastapi": ("--workers",),
}
_TORCHSERVE_VARIABLE: Final = "TS_DEFAULT_WORKERS_PER_MODEL"
_UVICORN_VARIABLE: Final = "UVICORN_WORKERS"

_SELF_BINDING_COMMANDS: Final = frozenset(
    ("vllm", "ray", "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic")
)
_SELF_BINDING_IMAGES: Final = frozenset(("vllm", "ray", "ray-ml", "ray-llm", "rayproject"))

# Containers that known injectors add to a pod: they run no inference.
SIDECARS: Final = frozenset(
    (
        "aws-otel-collector",
        "cloud-sql-proxy",
        "cloudsql-proxy",
        "consul-dataplane",
        "daprd",
        "datadog-agent",
        "envoy-sidecar",
        "filebeat",
        "fluent-bit",
        "fluentd",
        "gke-gcsfuse-sidecar",
        "istio-proxy",
        "istio-validation",
        "jaeger-agent",
        "kube-rbac-proxy",
        "kuma-sidecar",
        "linkerd-proxy",
        "oauth2-proxy",
        "otc-container",
        "queue-proxy",
        "vault-agent",
        "xray-daemon",
    )
)


def workers(container: Container) -> tuple[int, str]:
    """The worker processes that the container's command or variables ask for, and which; (1, "") where none does.

    A server's own arguments win over its variables, as they do in the server.
    """
    words = _words(container.arguments)
    for place, word in enumerate(words):
        flags = _FLAGS.get(word.rpartition("/")[2])
        if flags is not None:
            found = _flagged(words[place + 1 :], flags)
            if found is not None:
                return found, f"{word.rpartition('/')[2]} --workers"
    return _from_variables(container)


def _from_variables(container: Container) -> tuple[int, str]:
    if not container.env:
        return 1, ""
    arguments = container.effective("GUNICORN_CMD_ARGS")
    if arguments is not None and arguments.value:
        found = _flagged(arguments.value[:_MAX_ARGUMENT].split(), _FLAGS["gunicorn"])
        if found is not None:
            return found, "GUNICORN_CMD_ARGS"
    for name in ("WEB_CONCURRENCY", _UVICORN_VARIABLE, _TORCHSERVE_VARIABLE):
        entry = container.effective(name)
        count = _count(entry.value) if entry is not None and entry.value is not None else None
        if count is not None:
            return count, name
    return 1, ""


def binds_itself(container: Container) -> str:
    """The word in the image's name or the command that tells a runtime which binds its own threads; "" for none."""
    # The part before the first "/" may be a registry's host, the part after ":" or "@" is a version.
    for part in container.image[:_MAX_ARGUMENT].partition("@")[0].split("/"):
        name = part.partition(":")[0]
        if name in _SELF_BINDING_IMAGES or name.startswith("vllm-"):
            return name
    for word in _words(container.arguments):
        name = word.rpartition("/")[2]
        if name in _SELF_BINDING_COMMANDS or name.startswith("vllm.entrypoints"):
            return name
    return ""


def _words(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments[:_MAX_WORDS]:
        if " " in argument or "\n" in argument:
            words += argument[:_MAX_ARGUMENT].split()
        else:
            words.append(argument)
        if len(words) >= _MAX_WORDS:
            break
    return words[:_MAX_WORDS]


def _flagged(words: Sequence[str], flags: tuple[str, ...]) -> int | None:
    """The number that follows one of the flags, as "-w 4", "-w4" or "--workers=4"; the last one, as in argparse."""
    found = None
    for place, word in enumerate(words):
        for flag in flags:
            if word == flag:
                value = words[place + 1] if place + 1 < len(words) else ""
            elif flag.startswith("--") and word.startswith(flag + "="):
                value = word[len(flag) + 1 :]
            elif not flag.startswith("--") and word.startswith(flag):
                value = word[len(flag) :]
            else:
                continue
            found = _count(value.strip("\"'")) or found
    return found


def _count(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_WORKERS:
        return int(text)
    return None
