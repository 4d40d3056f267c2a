"""How the processes of one container find the shim: one variable for Python, one for Node.js, one for native code.

Each way says for a container `without_ours` what is to change, or why it can't be. Python has a way that leaves every
variable of the image alone; Node.js and the dynamic linker have one list each, which can only be extended where it is
known: where the pod spec sets it, or the policy's imageEnv states it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from raddle import delivery
from raddle.policy import Policy
from raddle_operator.environment import USER_BASE, Edits, extend, literal, unknown
from raddle_operator.pods import NODE_OPTIONS, PRELOAD, PYTHON_PATH, Container
from raddle_operator.reasons import Skip, SkipReason
from raddle_operator.volumes import Shim

_NO_USER_SITE: Final = "PYTHONNOUSERSITE"
# Kubernetes' names of architectures -> uname's. Others are not shipped for.
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
NODE: Final = "node"
NATIVE: Final = "native"
# Commands -> whose shim reaches what they run; longer ones that start them (`sh -c`) are looked into word by word.
_COMMANDS: Final = {
    **dict.fromkeys(("node", "nodejs", "npm", "npx", "yarn", "pnpm", "pm2", "pm2-runtime", "ts-node", "tsx"), NODE),
    "java": NATIVE,
}
_MAX_ARGUMENT: Final = 4096
_MAX_ARGUMENTS: Final = 1024
# Node.js's permission model: without leave to read the shim's folder it ends at start.
_PERMISSION: Final = ("--permission", "--experimental-permission")
_READ: Final = "--allow-fs-read="
_USER_SITE: Final = Edits(appended=(literal(USER_BASE, delivery.PYTHON_USER_BASE),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What makes the shim load in a container, and why it does not in some of its processes.

    `reaches`: the shim will be in the process that serves, as far as the command tells what that is.
    """

    edits: tuple[Edits, ...] = ()
    withheld: tuple[Skip, ...] = ()
    reaches: bool = False


def load(
    container: Container, policy: Policy, image_env: Mapping[str, str], shim: Shim, architecture: str | Skip
) -> Loading:
    """All ways together, for a container that the shim's files are mounted in."""
    serves = served_by(container)
    override = policy.existing_values == "Override"
    python = python_loading(container, image_env)
    node = node_loading(container, image_env, shim, serves_node=serves == NODE, override=override)
    if node is None and python is _USER_SITE and not serves and not wants_native(policy):
        return _PYTHON_ALONE
    native = None
    if wants_native(policy):
        native = native_loading(container, image_env, shim, architecture, override=override)
    ways = (python, node, native)
    in_process = {NODE: (node, native), NATIVE: (native,)}.get(serves, ways)
    return Loading(
        edits=tuple(way for way in ways if isinstance(way, Edits)),
        withheld=tuple(way for way in ways if isinstance(way, Skip)),
        reaches=any(isinstance(way, Edits) for way in in_process),
    )


# What most containers get.
_PYTHON_ALONE: Final = Loading(edits=(_USER_SITE,), reaches=True)


def served_by(container: Container) -> str:
    """Whose shim reaches what the container's command runs: NODE, NATIVE, or "" for Python and what can't be told.

    An image's own command can't be seen.
    """
    for word in _words(container):
        found = _COMMANDS.get(word.rpartition("/")[2])
        if found is not None:
            return found
    return ""


def _words(container: Container) -> Iterator[str]:
    for argument in container.arguments[:_MAX_ARGUMENTS]:
        yield from argument[:_MAX_ARGUMENT].split()


def wants_native(policy: Policy) -> bool:
    """Whether the policy asks for the native shim: by itself, or to preload an allocator."""
    return policy.native_shim == "Preload" or policy.allocator != "System"


# --- the ways -------------------------------------------------------------------------------------------------------


def python_loading(container: Container, image_env: Mapping[str, str]) -> Edits | Skip:
    """The changes that let Python find the shim; or why there is no safe way.

    PYTHONPATH is extended where the pod spec or the policy's imageEnv says what it is; else the user site is ours.
    """
    found = extend(container, PYTHON_PATH, delivery.PYTHON_PATH, image_env)
    if found is not None:
        return found
    if container.env:
        for name in (USER_BASE, _NO_USER_SITE):
            entry = container.effective(name)
            if entry is not None and entry.value != "":
                return unknown(f"the pod spec sets {name}; {_how_to_change(PYTHON_PATH)}")
    if image_env.get(USER_BASE):
        return unknown(f"the image sets {USER_BASE}; {_how_to_change(PYTHON_PATH)}")
    return _USER_SITE


def node_loading(
    container: Container, image_env: Mapping[str, str], shim: Shim, *, serves_node: bool, override: bool
) -> Edits | Skip | None:
    """The changes that let Node.js find the shim; or why not, None where nothing says that Node.js runs."""
    in_spec = container.effective(NODE_OPTIONS) is not None
    if not in_spec and NODE_OPTIONS not in image_env:
        return unknown(_how_to_change(NODE_OPTIONS)) if serves_node else None
    if not shim.node:
        return _missing("this build has no shim for Node.js")
    if not shim.certain:
        return _missing("the namespace's ConfigMap has not been seen yet, and Node.js ends where a required file lacks")
    if not in_spec and container.env_from and not override:
        return _hidden(NODE_OPTIONS)
    if _forbids_reading(container, image_env):
        return _missing(f"Node.js's permission model hides it; add {_READ}{delivery.MOUNT_PATH}/* to the command")
    return extend(container, NODE_OPTIONS, f"--require {delivery.NODE_MODULE}", image_env)


def _forbids_reading(container: Container, image_env: Mapping[str, str]) -> bool:
    entry = container.effective(NODE_OPTIONS)
    options = (entry.value or "") if entry is not None else image_env.get(NODE_OPTIONS, "")
    words = [*_words(container), *options[:_MAX_ARGUMENT].split()]
    if not any(word in _PERMISSION for word in words):
        return False
    allowed = (path for word in words if word.startswith(_READ) for path in word[len(_READ) :].split(","))
    return not any(path == "*" or path.startswith(delivery.MOUNT_PATH) for path in allowed)


def native_loading(
    container: Container, image_env: Mapping[str, str], shim: Shim, architecture: str | Skip, *, override: bool
) -> Edits | Skip:
    """The changes that preload the native shim; or why it can't be."""
    in_spec = container.effective(PRELOAD) is not None
    if not in_spec and PRELOAD not in image_env:
        return unknown(_how_to_change(PRELOAD))
    if isinstance(architecture, Skip):
        return architecture
    if architecture not in shim.architectures:
        return _missing(f"this build has no native shim for {architecture[:63]}")
    if not shim.certain:
        return _missing("the namespace's ConfigMap has not been seen yet, and each process complains of what it lacks")
    if not in_spec and container.env_from and not override:
        return _hidden(PRELOAD)
    found = extend(container, PRELOAD, delivery.native_library(architecture), image_env)
    assert found is not None, "the variable is known"
    return found


def architecture_of(wished: str, machine: str, known: frozenset[str]) -> str | Skip:
    """The architecture of the node that a pod will run on, as uname names it.

    `wished` is what the pod asks of its node, `machine` that of its node where it is known ("" for both: nothing),
    `known` those of all nodes that Raddle knows.
    """
    if machine:
        return machine
    if wished:
        return _ARCHITECTURES.get(wished, wished)
    if len(known) == 1:
        return next(iter(known))
    where = f"the nodes have {', '.join(sorted(known))}" if known else "no node is known"
    detail = f"{where}; set nodeSelector kubernetes.io/arch in the pod spec"
    return Skip(reason=SkipReason.ARCHITECTURE_UNKNOWN, detail=detail)


def _how_to_change(name: str) -> str:
    return f"set imageEnv.{name} in the policy to what the image sets (empty: nothing)"


def _missing(detail: str) -> Skip:
    return Skip(reason=SkipReason.SHIM_MISSING, detail=detail)


def _hidden(name: str) -> Skip:
    detail = f"envFrom may set {name}; set it in env, or existingValues: Override in the policy"
    return Skip(reason=SkipReason.ENV_FROM_PRESENT, detail=detail)
