"""How the processes of one container find the shim: by the door, or by one variable for Python, one for native code.

The door needs no variable. Where it is closed each way says what is to change, or why it can't be: a list can only be
extended where it is known, so where the pod spec sets it or the policy's imageEnv states it, and Python's user site can
only be replaced where the policy states that the image has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raddle import delivery
from raddle.planning.policy import Policy
from raddle_operator.injection.environment import USER_BASE, Edits, extend, literal, unknown
from raddle_operator.injection.volumes import Shim, in_the_way
from raddle_operator.objects.pods import PRELOAD, PYTHON_PATH, Container
from raddle_operator.objects.policy import PolicyObject
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


class ShimActivation(NamedTuple):
    """What makes the shim load in a container, and why it does not in some of its processes.

    `loads`: some process of the container may load it, so that its files and the plan have to be there. `reaches`: it
    will be in the process that serves, as far as the command tells what that is. `door`: every process loads it.
    """

    edits: tuple[Edits, ...] = ()
    withheld: tuple[Skip, ...] = ()
    loads: bool = False
    reaches: bool = False
    door: bool = False


_BY_DOOR: Final = ShimActivation(loads=True, reaches=True, door=True)


def activate(
    container: Container,
    policy: PolicyObject,
    shim: Shim | Skip | None,
    architecture: str | Skip,
    door_closed: Skip | None,
) -> ShimActivation:
    """How a container without ours loads the shim, which reaches its pod as `volumes.choose` says.

    `architecture` is that of the pod's node; `door_closed` says why a pod that is to have the door has it not.
    """
    if shim is None and wants_native(policy.policy):
        shim = _missing("nativeShim and allocator need the shim's files, and the policy's shim is None")
    if shim is None:
        return ShimActivation()
    if isinstance(shim, Shim) and shim.init_container is not None and container.field == "initContainers":
        shim = _missing("the shim is copied after the other init containers")
    elif isinstance(shim, Shim) and (occupied := in_the_way(container, delivery.MOUNT_PATH)):
        shim = _missing(occupied)
    if isinstance(shim, Skip):
        return ShimActivation(withheld=(shim,))
    if shim.by_door:
        return _BY_DOOR
    return _by_variables(container, policy, shim, architecture, door_closed)


def _by_variables(
    container: Container, policy: PolicyObject, shim: Shim, architecture: str | Skip, door_closed: Skip | None
) -> ShimActivation:
    """Both ways, for a container that the shim's files are mounted in and that has not the door."""
    # What stands in envFrom would be hidden by what is set beside it.
    hidden = container.env_from and policy.policy.existing_values != "Override"
    native: Edits | Skip | None = None
    if wants_native(policy.policy):
        native = _native(container, policy.image_env, shim, architecture, hidden=hidden)
    python: Edits | Skip | None = _python(container, policy.image_env, hidden=hidden)
    serves = native_program(container)
    if serves:
        # Its helpers may be Python's, but where they can't be reached nobody misses it.
        python = python if isinstance(python, Edits) else None
        native = native or _missing(f"{serves} has it by the door, or with nativeShim Preload in the policy")
    ways = (native, python)
    withheld = (door_closed, *(way for way in ways if isinstance(way, Skip)))
    return ShimActivation(
        edits=tuple(way for way in ways if isinstance(way, Edits)),
        withheld=tuple(dict.fromkeys(skip for skip in withheld if skip is not None)),
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


def _python(container: Container, image_env: Mapping[str, str], *, hidden: bool) -> Edits | Skip:
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


def _native(
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
