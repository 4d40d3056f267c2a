"""Which variables one container gets: counts that read annotations, literals of families, and what stays as it is set.

For a container without ours and its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from raddle import env
from raddle.planning.families import JAVA_OPTIONS
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle_operator.injection.literals import VARIABLES, Literals, literals, of_policy, overridden
from raddle_operator.injection.plan_annotations import COUNTS
from raddle_operator.objects.pods import Container
from raddle_operator.objects.reading import EMPTY
from raddle_operator.objects.reasons import Skip, SkipReason

Entry = Mapping[str, Any]

_HIDDEN: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT,
    detail="envFrom may set thread counts; set existingValues: Override to use Raddle's values",
)
_COMPLETED: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT,
    detail="envFrom may set thread counts, so missing counts are set only in processes with the shim; set "
    "existingValues: Override to set them in all processes",
)
_HIDDEN_OWN: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT, detail="envFrom may set the policy's own variables: set them in env"
)
_ADDED: Final = Skip(
    reason=SkipReason.SHIM_MISSING,
    detail=f"only the shim can append an option to {JAVA_OPTIONS}, which the image may set",
)

# Go reads what the kernel has given the process, which a shim can't complete.
_READ_AT_START: Final = frozenset(("GOMAXPROCS",))
# Beside those of OpenMP, whose names begin with OMP_.
_LOOKED_AT: Final = frozenset((env.PLAN, env.LITERALS, env.AGENT, *COUNTS, *VARIABLES))


class Variables(NamedTuple):
    """What a container gets: `references` are variables and the prefixes of the annotations that they read.

    `completed` are not set here: the shim sets those that a process lacks, and adds to Java's options; `counts` are
    those that it takes from the plan.
    `kept` names families' variables that stay as the pod spec sets them; `withheld` says what can't be given.
    """

    references: Mapping[str, str]
    literals: Mapping[str, str]
    completed: Mapping[str, str] = EMPTY
    counts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    withheld: tuple[Skip, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.references, *self.counts, *self.literals, *self.completed)


class Edits(NamedTuple):
    """Changes of a list of entries: `replaced` has what is in the place of one, None: it goes; `appended` follow."""

    replaced: Mapping[int, Entry | None] = MappingProxyType({})
    appended: tuple[Entry, ...] = ()


def sets_nothing(clean: Container, policy: Policy) -> bool:
    """Whether the container sets no variable that is looked at here."""
    known = clean.env.keys().isdisjoint(_LOOKED_AT | _own(policy))
    return known and not clean.env_from and not _openmp(clean)


def kept_counts(clean: Container, policy: Policy) -> tuple[str, ...]:
    """The counts that the pod spec sets and that the policy respects."""
    if policy.existing_values == "Override" or not clean.env:
        return ()
    return tuple(name for name in COUNTS if _is_set(clean, name))


def kept_literals(clean: Container, policy: Policy) -> tuple[str, ...]:
    """The families' other variables that the pod spec sets and that the policy respects."""
    if policy.existing_values == "Override":
        return ()
    known = (one.name for one in of_policy(policy) if one.name != JAVA_OPTIONS)
    result = map(clean.effective, filter(clean.env.__contains__, known))
    return tuple(entry.name for entry in result if entry is not None and entry.value != "")


def _is_set(container: Container, name: str) -> bool:
    """Whether the pod spec sets a count: runtimes read an empty value as none, and ONNX Runtime a 0 too."""
    entry = container.effective(name)
    if entry is None:
        return False
    return entry.value != "" and not (entry.value == "0" and name in (env.ORT_INTRA, env.ORT_INTER))


def hidden(clean: Container, policy: Policy) -> bool:
    """Whether variables may be set that can't be seen, and would be the user's."""
    return bool(clean.env_from) and policy.existing_values != "Override"


def chosen(clean: Container, plan: Plan, policy: Policy, *, kept: tuple[str, ...], shim: bool) -> Variables:
    """The variables of a container with this plan.

    `kept` are `kept_counts`; `shim`: one reads the plan, and sees what the image and envFrom set.
    """
    if hidden(clean, policy) and not shim:
        return Variables(references={}, literals={}, withheld=(_HIDDEN,))
    result, references = _literals(clean, plan, policy), _references(clean, plan, kept, policy)
    if shim and policy.existing_values != "Override":
        return _completed(clean, result, references, policy)
    # A name that no family has may be a secret's in what envFrom brings: it is set only where a process lacks it.
    behind = _own(policy) & result.values.keys() if clean.env_from else frozenset()
    absent = {name: result.values[name] for name in result.values if name in behind and name not in clean.env}
    withheld = (*((_ADDED,) if result.added else ()), *((_HIDDEN_OWN,) if absent else ()))
    return Variables(
        references={**({env.PLAN: env.SHIM_PREFIX} if shim else {}), **references},
        literals={name: value for name, value in result.values.items() if name not in behind},
        completed={**absent, **result.added} if shim else {},
        kept=result.kept + tuple(sorted(behind & clean.env.keys())),
        withheld=() if shim else withheld,
    )


def _completed(clean: Container, result: Literals, references: Mapping[str, str], policy: Policy) -> Variables:
    """As `chosen`, with a shim, which sets in each process what that lacks. The pod spec has the plan.

    There a count would replace the image's, and every framework would take it for the user's wish: it would give each
    of its processes as many threads, and not the one that it gives where nobody has said anything.
    """
    stays = _READ_AT_START if clean.env_from else _READ_AT_START | _own(policy)
    literals = {name: result.values[name] for name in result.values if name in stays and not hidden(clean, policy)}
    return Variables(
        references={env.PLAN: env.SHIM_PREFIX},
        literals=literals,
        completed={**{name: result.values[name] for name in result.values if name not in literals}, **result.added},
        counts=tuple(references),
        kept=result.kept,
        withheld=(_COMPLETED,) if hidden(clean, policy) else (),
    )


def _own(policy: Policy) -> frozenset[str]:
    """The names of the variables that the policy defines itself."""
    return frozenset(name for name, _ in policy.variables)


def _references(clean: Container, planned: Plan, kept: tuple[str, ...], policy: Policy) -> dict[str, str]:
    """Count variable -> the prefix of the annotation that it reads."""
    result = {}
    if "onnxruntime" in policy.runtimes:
        result = {name: COUNTS[name][0] for name in (env.ORT_INTRA, env.ORT_INTER) if name not in kept}
    if planned.omp is not None:
        result[env.OMP] = env.OMP_THREADS_PREFIX
    # It would beat an `export OMP_NUM_THREADS=1` in the entrypoint, and torchrun's and joblib's own choice.
    sets_omp = env.OMP in kept or _sets_omp(clean, planned, policy)
    if planned.blas is not None and planned.blas != planned.omp and not sets_omp:
        result[env.OPENBLAS] = env.BLAS_THREADS_PREFIX
    return result


def _sets_omp(clean: Container, planned: Plan, policy: Policy) -> bool:
    """Whether a variable of OpenMP's, other than the count, is the user's and stays."""
    names = _openmp(clean) - {env.OMP}
    return bool(names) and not names <= overridden(planned, policy)


def _openmp(clean: Container) -> set[str]:
    return {name for name in clean.env if name.startswith("OMP_")}


def _literals(clean: Container, plan: Plan, policy: Policy) -> Literals:
    """The variables of the policy's families that can't be references."""
    entries = map(clean.effective, clean.env.keys() & (VARIABLES | _own(policy)) | _openmp(clean))
    return literals(plan, policy, sets={entry.name: entry.value for entry in entries if entry is not None})


def edits(clean: Container, result: Variables, *, agent: str = "") -> Edits:
    """All changes of the container's environment.

    `agent` is what the shim is to tell, "" for nobody.

    A variable that the container has already is replaced where it stands; of several the last decides, and the others
    go.
    """
    told = {env.AGENT: agent} if agent else {}
    entries: list[Entry] = [_reference(name, prefix + clean.name) for name, prefix in result.references.items()]
    entries.extend(_listing(clean, {**result.literals, **told}, result.completed))
    entries.extend(_literal(name, value) for name, value in result.literals.items())
    entries.extend(_literal(name, value) for name, value in told.items())
    replaced: dict[int, Entry | None] = {}
    appended: list[Entry] = []
    for entry in entries:
        place = clean.env.get(entry["name"])
        if place is None:
            appended.append(entry)
            continue
        if len(clean.env) < len(clean.entries):
            replaced.update({other: None for other, raw in enumerate(clean.entries) if raw["name"] == entry["name"]})
        replaced[place] = entry
    return Edits(replaced, tuple(appended))


def _literal(name: str, value: str) -> Entry:
    """A variable whose value is in the pod spec."""
    return {"name": name, "value": value}


def _reference(name: str, annotation: str) -> Entry:
    """A variable whose value is one of the pod's own annotations, as the API server would write it."""
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": name, "valueFrom": source}


def _listing(container: Container, literals: Mapping[str, str], completed: Mapping[str, str]) -> list[Entry]:
    """The entry that says which of the others are Raddle's, for a container without ours; [] where none has to.

    It has the literals, and what the shim completes in a process; `NAME#` is one that stood there empty before.
    """
    result = [f"{name}={value}" for name, value in (*literals.items(), *completed.items())]
    before = {name: container.effective(name) for name in literals} if container.env else {}
    result.extend(f"{name}#" for name, entry in before.items() if entry is not None and entry.value == "")
    return [_literal(env.LITERALS, ";".join(result))] if result else []
