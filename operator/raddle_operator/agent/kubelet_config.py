"""What the kubelet says about how it hands out CPUs: its /configz, read and reduced to a `Kubelet`.

Two ways lead there. Configz: straight to the kubelet of this node, by the right on nodes/configz (Kubernetes
1.33). Proxy: through the API server, by the right on nodes/proxy. An agent that may not, or gets no answer, has
"unknown": a guess would hand out CPUs that belong to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet
from raddle.machine.document import CPU_MANAGER_POLICIES, TOPOLOGY_MANAGER_POLICIES, TOPOLOGY_MANAGER_SCOPES
from raddle.machine.fields import MAX_OPTIONS, MAX_TEXT

# kubelet.config.k8s.io/v1beta1 words of before the list was settled, and their meaning today.
_NO_POLICY = ("", "None")


def parse_configz(answer: Mapping[str, Any], source: str = "Configz") -> Kubelet:
    """The kubelet's CPU settings in an answer of /configz; a word that Raddle does not know is "unknown".

    `source` is the way that led there, one of document.KUBELET_SOURCES. `reserved_cpus` is the explicit list
    (reservedSystemCPUs) only. With kubeReserved and systemReserved a static policy takes as many CPUs as they say;
    which ones depends on machine, options and release (cpu_assignment.go), and /configz does not tell.
    """
    config = answer.get("kubeletconfig")
    if not isinstance(config, Mapping):
        return Kubelet()
    scope = config.get("topologyManagerScope")
    return Kubelet(
        cpu_manager_policy=_word(config.get("cpuManagerPolicy"), CPU_MANAGER_POLICIES),
        cpu_manager_policy_options=_options(config.get("cpuManagerPolicyOptions")),
        topology_manager_policy=_word(config.get("topologyManagerPolicy"), TOPOLOGY_MANAGER_POLICIES),
        reserved_cpus=_reserved(config.get("reservedSystemCPUs")),
        topology_manager_scope=scope if isinstance(scope, str) and scope in TOPOLOGY_MANAGER_SCOPES else "unknown",
        topology_manager_policy_options=_options(config.get("topologyManagerPolicyOptions")),
        source=source,
    )


def _options(value: object) -> tuple[tuple[str, str], ...]:
    options = value if isinstance(value, Mapping) else {}
    texts = [(key, text) for key, text in sorted(options.items()) if _is_text(key) and _is_text(text)]
    return tuple(texts[:MAX_OPTIONS])


def _word(value: object, known: tuple[str, ...]) -> str:
    if value in _NO_POLICY:
        return "none"
    return value if isinstance(value, str) and value in known else "unknown"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _reserved(value: object) -> int | None:
    try:
        return cpuset.parse_list(value) or None if isinstance(value, str) else None
    except ValueError:
        return None
