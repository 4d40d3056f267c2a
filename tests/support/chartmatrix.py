"""Values of the chart, combined so that every two settings meet: for rendering, and for real API servers."""

from support.pairs import pairwise

NO_CRDS = {"crds": {"install": False}}

# Every two of different lines meet in one rendering, so that no two settings break one another.
SOURCES = ({}, {"certificates": {"source": "CertManager"}}, {"certificates": {"source": "Secret"}})
DEFAULTS = ({}, {"injection": {"default": "labelled"}}, {"injection": {"default": "enabled", "excludedNamespaces": []}})
SHIMS = ({}, {"shim": {"configMaps": {"enabled": False}}}, {"shim": {"configMaps": {"namespaces": ["a", "b"]}}})
WORKLOADS = (
    {},
    {"webhook": {"replicas": 1}, "rbac": {"aggregate": False}, "admissionPolicies": {"enabled": False}},
    {
        "image": {"repository": "example/raddle", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "webhook": {
            "replicas": 5,
            "annotations": {"admissions.enforcer/disabled": "true"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"pool": "system"},
            "priorityClassName": "system-cluster-critical",
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.com/scrape": "yes"},
            "extraEnv": [{"name": "RADDLE_LOG_LEVEL", "value": "debug"}],
            "clientCA": {"configMap": "api-server-ca"},
        },
        "agent": {"kubeletConfig": "None"},
        "tuning": {"enabled": True, "image": "example/raddle-tuner:1"},
    },
    {"agent": {"enabled": False}, "controller": {"replicas": 1}, "tuning": {"enabled": True}},
)
NETWORKS = (
    {},
    {"webhook": {"hostNetwork": True, "port": 9443}, "networkPolicy": {"enabled": False}},
    {
        "webhook": {"port": 9443, "metricsPort": 9090},
        "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "egress": [{"ports": [{"port": 6443}]}]},
    },
)
MONITORING = (
    {},
    {"monitoring": {"scrape": {"kind": "PodMonitor", "labels": {"prometheus": "main"}}}},
    {
        "monitoring": {
            "scrape": {"kind": "ServiceMonitor"},
            "prometheusRule": {"enabled": True, "disabledAlerts": ["RaddlePodsStale"]},
            "grafanaDashboard": {"enabled": True, "annotations": {"folder": "Raddle"}},
        }
    },
)


def merged(*parts):
    """One set of values of several."""
    whole = {}
    for part in parts:
        for key, value in part.items():
            old = whole.get(key)
            whole[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return whole


MATRIX = [
    merged(*combination, NO_CRDS) for combination in pairwise(SOURCES, DEFAULTS, SHIMS, WORKLOADS, NETWORKS, MONITORING)
]


def named(objects, kind, name):
    """The one object of this kind and name."""
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found
