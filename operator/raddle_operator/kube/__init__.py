"""The API server: every request that the controller, the webhook and the command line send goes through here.

In come a kubeconfig or a service account and what is asked; out come plain JSON objects, lists that follow changes, or
a `KubeError` of the kind that was met. `resources` says where, `session` sends, `client` asks, `informer` follows;
`events`, `leader` and `ownership` are what a controller does with them.
"""

from raddle_operator.kube.client import WATCH_TIMEOUT_S, Executed, Kube, Page, WatchEvent
from raddle_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    ConfigError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
    Unreachable,
    error_from_status,
)
from raddle_operator.kube.resources import (
    CLUSTER_INFERENCE_THREADINGS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_THREADINGS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Object,
    Operations,
    Resource,
)
from raddle_operator.kube.session import Connection

__all__ = [
    "CLUSTER_INFERENCE_THREADINGS",
    "CONFIG_MAPS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DEPLOYMENTS",
    "EVENTS",
    "INFERENCE_THREADINGS",
    "LEASES",
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "NODES",
    "NODE_CPU_TOPOLOGIES",
    "NODE_RESOURCE_TOPOLOGIES",
    "PODS",
    "SECRETS",
    "SERVICE_ACCOUNTS",
    "WATCH_TIMEOUT_S",
    "AlreadyExists",
    "ApiError",
    "ConfigError",
    "Conflict",
    "Connection",
    "Executed",
    "Forbidden",
    "Gone",
    "Invalid",
    "Kube",
    "KubeError",
    "NotFound",
    "Object",
    "Operations",
    "Page",
    "Resource",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "WatchEvent",
    "error_from_status",
]
