"""A post-renderer of Helm: leaves out what runs Raddle in the cluster, where a developer's machine runs it outside."""

from __future__ import annotations

import re
import sys

KINDS = {"Deployment", "DaemonSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def kept(manifests: str) -> str:
    """The manifests that are none of these kinds, with their comments."""
    documents = f"\n{manifests}".split("\n---\n")
    return "\n---\n".join(one for one in documents if not KINDS & set(re.findall(r"^kind: (\w+)$", one, re.MULTILINE)))


if __name__ == "__main__":
    sys.stdout.write(kept(sys.stdin.read()))
