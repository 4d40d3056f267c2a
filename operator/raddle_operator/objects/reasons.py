"""Why a pod or one of its containers did not get all that its policy asks for.

One enumeration for the log, the metric's label, the event's reason and `raddle explain`, so that the same word can
be searched for everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class SkipReason(StrEnum):
    """The value is what people see; docs/reference/skip-reasons.md explains each."""

    OPTED_OUT = "OptedOut"
    NO_POLICY = "NoPolicy"
    POLICY_NOT_FOUND = "PolicyNotFound"
    CONFLICT = "Conflict"
    TOO_MANY_POLICIES = "TooManyPolicies"
    MIRROR_POD = "MirrorPod"
    WINDOWS_POD = "WindowsPod"
    SELF_BINDING_RUNTIME = "SelfBindingRuntime"
    NO_CPU_BOUND = "NoCPUBound"
    ANNOTATION_BUDGET = "AnnotationBudget"
    IMAGE_ENV_UNKNOWN = "ImageEnvUnknown"
    ENV_FROM_PRESENT = "EnvFromPresent"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    SHIM_MISSING = "ShimMissing"
    DOOR_OCCUPIED = "DoorOccupied"
    DOOR_CLOSED = "DoorClosed"
    ARCHITECTURE_UNKNOWN = "ArchitectureUnknown"
    REPORTS_MISSING = "ReportsMissing"
    WEBHOOK_MISSED = "WebhookMissed"
    OBSERVED = "Observed"
    MALFORMED = "Malformed"
    CACHES_NOT_READY = "CachesNotReady"
    NAMESPACE_UNKNOWN = "NamespaceUnknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A reason and what it was about, in words that say what to change where something can be changed."""

    reason: SkipReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)
