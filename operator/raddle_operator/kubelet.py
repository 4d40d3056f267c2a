"""What the kubelet says about how it hands out CPUs: its /configz, read and reduced to a `Kubelet`.

Two ways lead there. Configz: straight to the kubelet of this node, by the right on nodes/configz (Kubernetes
1.33). Proxy: through the API server, by the right on nodes/proxy. Whoever may not, or gets no answer, has
"unknown": a guess would hand out CPUs that belong to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raddle import cpuset
from raddle.document import CPU_MANAGER_POLICIES, MAX_OPTIONS, MAX_TEXT, TOPOLOGY_MANAGER_POLICIES
from raddle.topology import Kubelet

# kubelet.config.k8s.io/v1beta1 words of before the list was settled, and their meaning today.
_NO_POLICY = ("", "None")


def parse_configz(answer: Mapping[str, Any]) -> Kubelet:
    """The kubelet's CPU settings in an answer of /configz; a word that Raddle does not know is "unknown".

    `reserved_cpus` is the explicit list (reservedSystemCPUs) only: without one, a static policy reserves CPUs
    of its own choice, which /configz does not tell.
    """
    config = answer.get("kubeletconfig")
    if not isinstance(config, Mapping):
        return Kubelet()
    options = config.get("cpuManagerPolicyOptions")
    if not isinstance(options, Mapping):
        options = {}
    texts = [(key, value) for key, value in sorted(options.items()) if _is_text(key) and _is_text(value)]
    return Kubelet(
        cpu_manager_policy=_word(config.get("cpuManagerPolicy"), CPU_MANAGER_POLICIES),
        cpu_manager_policy_options=tuple(texts[:MAX_OPTIONS]),
        topology_manager_policy=_word(config.get("topologyManagerPolicy"), TOPOLOGY_MANAGER_POLICIES),
        reserved_cpus=_reserved(config.get("reservedSystemCPUs")),
    )


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
