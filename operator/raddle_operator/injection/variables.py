"""Which variables one container gets: counts that read annotations, literals of families, and what stays as it is set.

For a container without ours and its plan; `activation` says how the shim is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from raddle import env
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle_operator.injection.environment import Edits, Entry, checksum, java_options, literal, renamed
from raddle_operator.injection.literals import VARIABLES, Literals, literals, of_policy, overridden
from raddle_operator.injection.plan_annotations import COUNTS
from raddle_operator.objects.pods import EXTENDED, JAVA_OPTIONS, Container
from raddle_operator.objects.reading import EMPTY
from raddle_operator.objects.reasons import Skip, SkipReason

_HIDDEN: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT, detail="envFrom may set thread counts; existingValues: Override gives Raddle's"
)
_COMPLETED: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT,
    detail="envFrom may set thread counts, so only processes with the shim get those that are absent;"
    " existingValues: Override gives Raddle's to all",
)

_HIDDEN_OWN: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT, detail="envFrom may set the policy's own variables: set them in env"
)

# Beside those of OpenMP, whose names begin with OMP_.
_LOOKED_AT: Final = frozenset((env.PLAN, env.LITERALS, env.AGENT, *COUNTS, *EXTENDED, *VARIABLES))


class Variables(NamedTuple):
    """What a container gets: `references` are variables and the prefixes of the annotations that they read.

    `completed` are not set here: behind the door the shim sets those that a process lacks, and adds to Java's options.
    `kept` names families' variables that stay as the pod spec sets them; `withheld` says what can't be given.
    """

    references: Mapping[str, str]
    literals: Mapping[str, str]
    completed: Mapping[str, str] = EMPTY
    kept: tuple[str, ...] = ()
    withheld: tuple[Skip, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.references, *self.literals, *self.completed)


def sets_nothing(clean: Container, policy: Policy, image_env: Mapping[str, str]) -> bool:
    """Whether neither the container sets a variable that is looked at here, nor the image one that is extended."""
    known = clean.env.keys().isdisjoint(_LOOKED_AT) and JAVA_OPTIONS not in image_env
    known = known and clean.env.keys().isdisjoint(_own(policy))
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
    known = (one.name for one in of_policy(policy) if one.name not in EXTENDED)
    found = map(clean.effective, filter(clean.env.__contains__, known))
    return tuple(entry.name for entry in found if entry is not None and entry.value != "")


def _is_set(container: Container, name: str) -> bool:
    """Whether the pod spec sets a count: runtimes read an empty value as none, and ONNX Runtime a 0 too."""
    entry = container.effective(name)
    if entry is None:
        return False
    return entry.value != "" and not (entry.value == "0" and name in (env.ORT_INTRA, env.ORT_INTER))


def hidden(clean: Container, policy: Policy) -> bool:
    """Whether variables may be set that can't be seen, and would be the user's."""
    return bool(clean.env_from) and policy.existing_values != "Override"


def chosen(
    clean: Container,
    plan: Plan,
    policy: Policy,
    image_env: Mapping[str, str],
    *,
    kept: tuple[str, ...],
    shim: bool,
    door: bool,
) -> Variables:
    """The variables of a container with this plan.

    `kept` are `kept_counts`; `shim`: one is to read the plan; `door`: it sees what the image and envFrom set.
    """
    told: Mapping[str, str] = {env.PLAN: env.SHIM_PREFIX} if shim else {}
    if hidden(clean, policy) and not door:
        return Variables(references=told, literals={}, withheld=(_HIDDEN,))
    found = _literals(clean, plan, policy, image_env)
    if hidden(clean, policy):
        completed = {**found.values, **found.left}
        return Variables(references=told, literals={}, completed=completed, kept=found.kept, withheld=(_COMPLETED,))
    # A name that no family has may be a secret's in what envFrom brings: it is set only where a process lacks it.
    behind = _own(policy) & found.values.keys() if clean.env_from else frozenset()
    absent = {name: found.values[name] for name in found.values if name in behind and name not in clean.env}
    withheld = (*found.withheld, _HIDDEN_OWN) if absent else found.withheld
    return Variables(
        references={**told, **_references(clean, plan, kept, policy)},
        literals={name: value for name, value in found.values.items() if name not in behind},
        completed={**absent, **found.left} if door else {},
        kept=found.kept + tuple(sorted(behind & clean.env.keys())),
        withheld=() if door else withheld,
    )


def _own(policy: Policy) -> frozenset[str]:
    """The names of the variables that the policy defines itself."""
    return frozenset(name for name, _ in policy.variables)


def _references(clean: Container, planned: Plan, kept: tuple[str, ...], policy: Policy) -> dict[str, str]:
    """Count variable -> the prefix of the annotation that it reads."""
    found = {}
    if "onnxruntime" in policy.runtimes:
        found = {name: COUNTS[name][0] for name in (env.ORT_INTRA, env.ORT_INTER) if name not in kept}
    if planned.omp is not None:
        found[env.OMP] = env.OMP_THREADS_PREFIX
    # It would beat an `export OMP_NUM_THREADS=1` in the entrypoint, and torchrun's and joblib's own choice.
    sets_omp = env.OMP in kept or _sets_omp(clean, planned, policy)
    if planned.blas is not None and planned.blas != planned.omp and not sets_omp:
        found[env.OPENBLAS] = env.BLAS_THREADS_PREFIX
    return found


def _sets_omp(clean: Container, planned: Plan, policy: Policy) -> bool:
    """Whether a variable of OpenMP's, other than the count, is the user's and stays."""
    names = _openmp(clean) - {env.OMP}
    return bool(names) and not names <= overridden(planned, policy)


def _openmp(clean: Container) -> set[str]:
    return {name for name in clean.env if name.startswith("OMP_")}


def _literals(clean: Container, plan: Plan, policy: Policy, image_env: Mapping[str, str]) -> Literals:
    """The variables of the policy's families that can't be references."""
    entries = map(clean.effective, clean.env.keys() & (VARIABLES | _own(policy)) | _openmp(clean))
    sets = {entry.name: entry.value for entry in entries if entry is not None} | java_options(clean)[0]
    return literals(plan, policy, sets=sets, image_env=image_env)


def edits(clean: Container, found: Variables, activation: Sequence[Edits], *, agent: str = "") -> Edits:
    """All changes of the container's environment; `activation` are the shim's own edits.

    `agent` is what the shim is to tell, "" for nobody.

    A variable that the container has already is replaced where it stands; of several the last decides, and the others
    go, but for those of lists, where only the last is extended.
    """
    entries: list[Entry] = [_reference(name, prefix + clean.name) for name, prefix in found.references.items()]
    told = {env.AGENT: agent} if agent else {}
    entries.extend(_listing(clean, {**found.literals, **told}, found.completed, activation))
    others = list(activation)
    by_reference = java_options(clean)[1] if JAVA_OPTIONS in found.literals else None
    for name, value in found.literals.items():
        if name == JAVA_OPTIONS and by_reference is not None:
            others.append(renamed(clean, by_reference, value))
        else:
            entries.append(literal(name, value))
    entries.extend(literal(name, value) for name, value in told.items())
    replaced: dict[int, Sequence[Entry]] = {}
    appended: list[Entry] = []
    for entry in entries:
        name = entry["name"]
        place = clean.env.get(name)
        if place is None:
            appended.append(entry)
            continue
        if name not in EXTENDED and len(clean.env) < len(clean.entries):
            replaced.update({other: () for other, raw in enumerate(clean.entries) if raw["name"] == name})
        replaced[place] = (entry,)
    for edit in others:
        replaced.update(edit.replaced)
        appended.extend(edit.appended)
    return Edits(replaced, appended)


def _reference(name: str, annotation: str) -> Entry:
    """A variable whose value is one of the pod's own annotations, as the API server would write it."""
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": name, "valueFrom": source}


def _listing(
    container: Container, literals: Mapping[str, str], completed: Mapping[str, str], edits: Iterable[Edits]
) -> list[Entry]:
    """The entry that says which of the others are Raddle's, for a container without ours; [] where none has to.

    It has the literals, of Java's options, which are added to others, the last word; what the shim completes where that
    is absent; and a checksum of each list that the container has only from Raddle: as long as it agrees, nobody has
    added anything.
    """
    found = [f"{name}={value.rpartition(' ')[2]}" for name, value in (*literals.items(), *completed.items())]
    before = {name: container.effective(name) for name in literals if name not in EXTENDED} if container.env else {}
    found.extend(f"{name}#" for name, entry in before.items() if entry is not None and entry.value == "")
    added = [entry for edit in edits for entry in edit.appended if entry["name"] in EXTENDED]
    if JAVA_OPTIONS in literals and container.effective(JAVA_OPTIONS) is None:
        added.append(literal(JAVA_OPTIONS, literals[JAVA_OPTIONS]))
    found.extend(f"{entry['name']}#{checksum(entry['value'])}" for entry in added)
    return [literal(env.LITERALS, ";".join(found))] if found else []
