"""Why a pod or one of its containers did not get all that its policy asks for.

One enumeration for the log, the metric's label, the event's reason and `raddle explain`, so that the same word can
be searched for everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Self


@unique
class SkipReason(StrEnum):
    """The word that people see, what it is about, and what to do: docs/reference/skip-reasons.md is made from this."""

    about: str
    advice: str

    def __new__(cls, word: str, about: str, advice: str) -> Self:
        """A reason; as text it is the word."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.about = about
        reason.advice = advice
        return reason

    OPTED_OUT = (
        "OptedOut",
        "namespace or pod is not opted in",
        "label the namespace `raddle.dev/inject: enabled`, or `labelled` and the pod template `enabled`",
    )
    NO_POLICY = ("NoPolicy", "no policy selects the pod", "compare `podSelector` and the pod's labels")
    POLICY_NOT_FOUND = (
        "PolicyNotFound",
        "the pod's label `raddle.dev/policy` names a policy that does not exist, or that does not select the pod",
        "correct the label; there is no fallback",
    )
    CONFLICT = (
        "Conflict",
        "an older policy of the same rank and priority takes precedence",
        "give one of them a higher `priority`, or narrower selectors",
    )
    TOO_MANY_POLICIES = (
        "TooManyPolicies",
        "the namespace has more policies than Raddle evaluates",
        "remove some; only the oldest 100 are evaluated",
    )
    MIRROR_POD = (
        "MirrorPod",
        "the API server's copy of a static pod",
        "none: changes to a mirror pod do not affect the running pod",
    )
    WINDOWS_POD = ("WindowsPod", "Raddle supports only Linux", "none")
    MANAGED_BY_SERVER = (
        "ManagedByServer",
        "the server sets its own thread counts; `raddle presets` lists such servers",
        "none, or follow the detail; to plan it anyway, name the container in the policy's `containers`",
    )
    NO_CPU_BOUND = (
        "NoCPUBound",
        "no CPU limit and no known node: there is no CPU budget to plan with",
        "set a limit, or run the agents",
    )
    ANNOTATION_BUDGET = ("AnnotationBudget", "the pod's own annotations leave too little room", "shorten them")
    ENV_FROM_PRESENT = (
        "EnvFromPresent",
        (
            "`envFrom` may set thread counts. With the shim, each process gets the missing counts; static and musl "
            "programs, and processes without the shim, get none"
        ),
        "`existingValues: Override`, or set them in `env`",
    )
    CONTAINER_NOT_FOUND = (
        "ContainerNotFound",
        "the policy names a container that the pod does not have",
        "correct `containers`",
    )
    SHIM_MISSING = (
        "ShimMissing",
        "the shim's files are not in the namespace (yet), or this build has none for the node's architecture",
        (
            "wait for the controller, or let it write ConfigMaps (`shim.configMaps.enabled`); the detail says what "
            "is missing"
        ),
    )
    DOOR_OCCUPIED = (
        "DoorOccupied",
        (
            "something else uses `/etc/ld.so.preload` or `/opt/raddle`: a volume mounted at, above or below it, or "
            "a device plugin that shares GPUs through it"
        ),
        "none if that is intended; else mount it elsewhere; the detail names it",
    )
    DOOR_CLOSED = (
        "DoorClosed",
        "the pod's label `raddle.dev/door: closed`, or the chart's `shim.door: false`",
        "none if that is intended; else remove the label, or set the value to true",
    )
    ARCHITECTURE_UNKNOWN = (
        "ArchitectureUnknown",
        ("the shim's library depends on the architecture, and the nodes have several or none is known"),
        "set `nodeSelector: {kubernetes.io/arch: amd64}` in the pod spec, or run the agents",
    )
    WEBHOOK_MISSED = (
        "WebhookMissed",
        ("the pod should have values, but was created before the policy, or while the webhook did not answer"),
        "restart the rollout",
    )
    OBSERVED = ("Observed", "the policy has `mode: Observe`", "set `mode: Initial`")
    MALFORMED = ("Malformed", "a field of the pod can't be read", "the detail names it")
    CACHES_NOT_READY = (
        "CachesNotReady",
        "the webhook's caches were not synced yet",
        "restart the rollout; caches sync within seconds of the webhook's start",
    )
    NAMESPACE_UNKNOWN = (
        "NamespaceUnknown",
        "the namespace's labels could not be read in time",
        "restart the rollout; the detail gives the cause",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A reason and what it was about, in words that say what to change where something can be changed."""

    reason: SkipReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)
