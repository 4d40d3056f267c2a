"""The Deployments of the demo: one per case, as a user would write them. Raddle is nowhere in them."""

from __future__ import annotations

from typing import Any

from cluster import objects

NAMESPACE = "models"
# name -> (replicas, resources, node selector, what it shows)
CASES: dict[str, tuple[int, dict[str, Any], dict[str, str], str]] = {
    "resnet": (3, {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "1"}}, {"shape": "big"}, "limit 4"),
    "small": (1, {"limits": {"cpu": "500m"}}, {"shape": "here"}, "limit 0.5"),
    "ranking": (1, {"limits": {"cpu": "1500m"}, "requests": {"cpu": "500m"}}, {"shape": "here"}, "limit 1.5"),
    "pinned": (
        1,
        {"limits": {"cpu": "8", "memory": "4Gi"}, "requests": {"cpu": "8", "memory": "4Gi"}},
        {"cpu-manager": "static"},
        "Guaranteed, 8 whole CPUs, static CPU manager",
    ),
    "open": (3, {"requests": {"cpu": "2"}}, {"shape": "big"}, "no limit"),
}


def manifests() -> list[dict[str, Any]]:
    """The Deployments; replicas of one spread over the nodes that their selector allows."""
    return [_deployment(name, *case[:3]) for name, case in CASES.items()]


def _deployment(name: str, replicas: int, resources: dict[str, Any], selector: dict[str, str]) -> dict[str, Any]:
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    container = {"name": "serve", "image": f"registry.example/{name}:1", "resources": resources}
    more = {"nodeSelector": selector, "topologySpreadConstraints": [spread]}
    return objects.deployment(name, replicas, container, namespace=NAMESPACE, **more)
