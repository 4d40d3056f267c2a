"""Versions of the components, and which version that is already there may stand in for the wanted one."""

from __future__ import annotations

import re
from typing import NamedTuple

ETCD_MAJOR = 3
ETCD_OLDEST_MINOR = 5
"""etcd 3.5 serves every Kubernetes version that this tool builds."""

_PATTERN = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


class Version(NamedTuple):
    """A release, `major.minor.patch`."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        """The version without a leading v: 1.34.4."""
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """The first version in a text such as `Kubernetes v1.34.4`; raises ValueError where there is none."""
        match = _PATTERN.search(text)
        if match is None:
            raise ValueError(f"version: got {text!r}, expected major.minor.patch such as 1.34.4")
        major, minor, patch = (int(part) for part in match.groups())
        return cls(major, minor, patch)


DEFAULT_KUBERNETES = Version(1, 34, 4)
DEFAULT_CONTAINERD = Version(2, 2, 9)
DEFAULT_RUNC = Version(1, 3, 4)
DEFAULT_HELM = Version(3, 19, 5)
DEFAULT_METRICS_SERVER = Version(0, 9, 0)
DEFAULT_VPA = Version(1, 8, 1)


def fits(component: str, result: Version, wanted: Version) -> bool:
    """Whether an existing `component` may be used where `wanted` is asked for.

    `wanted` is the Kubernetes version, or Helm's for helm. Servers and the kubelet: the same minor. kubectl: one minor
    to either side, as its skew policy says. etcd: 3.5 or a later 3.x. helm: the same major, and no older minor.
    """
    if component == "etcd":
        return (ETCD_MAJOR, ETCD_OLDEST_MINOR) <= result < (ETCD_MAJOR + 1,)
    if result.major != wanted.major:
        return False
    if component == "kubectl":
        return abs(result.minor - wanted.minor) <= 1
    if component == "helm":
        return result.minor >= wanted.minor
    return result.minor == wanted.minor
