"""How the processes of one container find the shim: by the door, or by one variable for Python, one for native code.

The door needs no variable. Where it is closed each way says for a container `without_ours` what is to change, or why it
can't be: a list can only be extended where it is known, so where the pod spec sets it or the policy's imageEnv states
it, and Python's user site can only be replaced where the policy states that the image has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from raddle import delivery
from raddle.planning.policy import Policy
from raddle_operator.injection.environment import USER_BASE, Edits, extend, literal, unknown
from raddle_operator.injection.volumes import Shim
from raddle_operator.objects.pods import PRELOAD, PYTHON_PATH, Container
from raddle_operator.objects.reasons import Skip, SkipReason

_NO_USER_SITE: Final = "PYTHONNOUSERSITE"
# Kubernetes' names of architectures -> uname's. Others are not shipped for.
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Commands of programs that only the native shim reaches; longer ones that start them (`sh -c`) are looked into word by
# word.
_NODE: Final = ("node", "nodejs", "npm", "npx", "yarn", "pnpm", "pm2", "pm2-runtime", "ts-node", "tsx")
_NATIVE: Final = frozenset((*_NODE, "java"))
_MAX_ARGUMENT: Final = 4096
_MAX_ARGUMENTS: Final = 1024
_USER_SITE: Final = Edits(appended=(literal(USER_BASE, delivery.PYTHON_USER_BASE),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What makes the shim load in a container, and why it does not in some of its processes.

    `loads`: some process of the container may load it, so that its files and the plan have to be there. `reaches`: it
    will be in the process that serves, as far as the command tells what that is. `door`: every process loads it.
    """

    edits: tuple[Edits, ...] = ()
    withheld: tuple[Skip, ...] = ()
    loads: bool = False
    reaches: bool = False
    door: bool = False


BY_DOOR: Final = Loading(loads=True, reaches=True, door=True)
"""What a container behind the open door has."""


def by_variables(
    container: Container, policy: Policy, image_env: Mapping[str, str], shim: Shim, architecture: str | Skip
) -> Loading:
    """All ways together, for a container that the shim's files are mounted in and that has not the door."""
    # What stands in envFrom would be hidden by what is set beside it.
    hidden = container.env_from and policy.existing_values != "Override"
    native: Edits | Skip | None = None
    if wants_native(policy):
        native = native_loading(container, image_env, shim, architecture, hidden=hidden)
    python: Edits | Skip | None = python_loading(container, image_env, hidden=hidden)
    serves = native_program(container)
    if serves:
        # Its helpers may be Python's, but where they can't be reached nobody misses it.
        python = python if isinstance(python, Edits) else None
        native = native or _missing(f"{serves} has it by the door, or with nativeShim Preload in the policy")
    ways = (native, python)
    return Loading(
        edits=tuple(way for way in ways if isinstance(way, Edits)),
        withheld=tuple(way for way in ways if isinstance(way, Skip)),
        loads=any(isinstance(way, Edits) for way in ways),
        reaches=any(isinstance(way, Edits) for way in (ways[:1] if serves else ways)),
    )


def native_program(container: Container) -> str:
    """What the container's command runs where only the native shim reaches it; "" for Python and what can't be told.

    An image's own command can't be seen.
    """
    for word in _words(container):
        name = word.rpartition("/")[2]
        if name in _NATIVE:
            return name
    return ""


def _words(container: Container) -> Iterator[str]:
    for argument in container.arguments[:_MAX_ARGUMENTS]:
        yield from argument[:_MAX_ARGUMENT].split()


def wants_native(policy: Policy) -> bool:
    """Whether the policy asks for the native shim: by itself, or to preload an allocator."""
    return policy.native_shim == "Preload" or policy.allocator != "System"


# --- the ways -------------------------------------------------------------------------------------------------------


def python_loading(container: Container, image_env: Mapping[str, str], *, hidden: bool) -> Edits | Skip:
    """The changes that let Python find the shim; or why there is no safe way.

    PYTHONPATH is extended where the pod spec or the policy's imageEnv says what it is. PYTHONUSERBASE hides what is in
    the folder that it named before, so it is set only where the policy states that it is empty in the image.
    """
    if hidden and container.effective(PYTHON_PATH) is None:
        return _hidden(PYTHON_PATH)
    found = extend(container, PYTHON_PATH, delivery.PYTHON_PATH, image_env)
    if found is not None:
        return found
    if container.env:
        for name in (USER_BASE, _NO_USER_SITE):
            entry = container.effective(name)
            if entry is not None and entry.value != "":
                return unknown(f"the pod spec sets {name}; {_how_to_change(PYTHON_PATH)}")
    if image_env.get(USER_BASE) == "":
        return _USER_SITE
    return unknown(_how_to_change(PYTHON_PATH))


def native_loading(
    container: Container, image_env: Mapping[str, str], shim: Shim, architecture: str | Skip, *, hidden: bool
) -> Edits | Skip:
    """The changes that preload the native shim; or why it can't be."""
    in_spec = container.effective(PRELOAD) is not None
    if not in_spec and PRELOAD not in image_env:
        return unknown(_how_to_change(PRELOAD))
    if isinstance(architecture, Skip):
        return architecture
    if architecture not in shim.architectures:
        return _missing(f"this build has no native shim for {architecture[:63]}")
    if hidden and not in_spec:
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
