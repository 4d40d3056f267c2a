"""How many processes share a container's CPUs, as far as its command and variables say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raddle.planning.templates import OF_PROCESSES
from raddle_operator.objects.commands import MAX_ARGUMENT, words
from raddle_operator.objects.pods import Container

MAX_WORKERS: Final = 1024
_GUNICORN_ARGUMENTS: Final = "GUNICORN_CMD_ARGS"

# Server -> its flags for the number of worker processes.
_FLAGS: Final = {
    "gunicorn": ("--workers", "-w"),
    "uvicorn": ("--workers",),
    "hypercorn": ("--workers", "-w"),
    "granian": ("--workers",),
    "fastapi": ("--workers",),
}

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
    found_words = words(container.arguments)
    for place, word in enumerate(found_words):
        flags = _FLAGS.get(word.rpartition("/")[2])
        if flags is not None:
            result = _flagged(found_words[place + 1 :], flags)
            if result is not None:
                return result, f"{word.rpartition('/')[2]} --workers"
    return _from_variables(container)


def _from_variables(container: Container) -> tuple[int, str]:
    if not container.env:
        return 1, ""
    arguments = container.effective(_GUNICORN_ARGUMENTS)
    if arguments is not None and arguments.value:
        result = _flagged(arguments.value[:MAX_ARGUMENT].split(), _FLAGS["gunicorn"])
        if result is not None:
            return result, _GUNICORN_ARGUMENTS
    for name in OF_PROCESSES:
        entry = container.effective(name)
        count = _count(entry.value) if entry is not None and entry.value is not None else None
        if count is not None:
            return count, name
    return 1, ""


def _flagged(words: Sequence[str], flags: tuple[str, ...]) -> int | None:
    """The number that follows one of the flags, as "-w 4", "-w4" or "--workers=4"; the last one, as in argparse."""
    result = None
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
            result = _count(value.strip("\"'")) or result
    return result


def _count(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_WORKERS:
        return int(text)
    return None
