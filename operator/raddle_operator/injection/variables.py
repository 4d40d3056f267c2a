"""Which variables one container gets: counts that read annotations, literals of families, and what stays as it is set.

Pure, for a container `without_ours` and its plan; `environment` writes them, `loading` says how the shim is found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raddle import delivery, env
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle_operator.injection import environment, families, plan_annotations
from raddle_operator.injection.environment import Edits, Entry
from raddle_operator.injection.plan_annotations import Composed
from raddle_operator.objects.pods import JAVA_OPTIONS, Container
from raddle_operator.objects.reasons import Skip, SkipReason

_HIDDEN: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT, detail="envFrom may set thread counts; existingValues: Override gives Raddle's"
)
_COMPLETED: Final = Skip(
    reason=SkipReason.ENV_FROM_PRESENT,
    detail="envFrom may set thread counts, so only processes with the shim get those that are absent;"
    " existingValues: Override gives Raddle's to all",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """What a container gets: `references` are variables and the prefixes of the annotations that they read.

    `completed` are not set here: behind the door the shim sets those that a process lacks, and adds to Java's options.
    `kept` names families' variables that stay as the pod spec sets them; `withheld` says what can't be given.
    """

    references: Mapping[str, str]
    literals: Mapping[str, str]
    completed: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    withheld: tuple[Skip, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.references, *self.literals, *self.completed)


def kept_counts(clean: Container, policy: Policy) -> tuple[str, ...]:
    """The counts that the pod spec sets and that the policy respects."""
    if policy.existing_values == "Override" or not clean.env:
        return ()
    return tuple(name for name in plan_annotations.COUNTS if _is_set(clean, name))


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
    composed: Composed,
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
    plan: Mapping[str, str] = {env.PLAN: env.SHIM_PREFIX} if shim else {}
    if hidden(clean, policy) and not door:
        return Variables(references=plan, literals={}, withheld=(_HIDDEN,))
    found = _literals(clean, composed, policy, image_env)
    if hidden(clean, policy):
        completed = {**found.values, **found.left}
        return Variables(references=plan, literals={}, completed=completed, kept=found.kept, withheld=(_COMPLETED,))
    return Variables(
        references={**plan, **_references(clean, composed.plan, kept, policy)},
        literals=found.values,
        completed=found.left if door else {},
        kept=found.kept,
        withheld=() if door else found.withheld,
    )


def _references(clean: Container, planned: Plan, kept: tuple[str, ...], policy: Policy) -> dict[str, str]:
    """Count variable -> the prefix of the annotation that it reads."""
    found = {}
    if "onnxruntime" in policy.runtimes:
        found = {name: plan_annotations.COUNTS[name][0] for name in (env.ORT_INTRA, env.ORT_INTER) if name not in kept}
    if planned.omp is not None:
        found[env.OMP] = env.OMP_THREADS_PREFIX
    # It would beat an `export OMP_NUM_THREADS=1` in the entrypoint, and torchrun's and joblib's own choice.
    sets_omp = env.OMP in kept or (clean.sets_omp and _sets_omp(clean, families.overridden(planned, policy)))
    if planned.blas is not None and planned.blas != planned.omp and not sets_omp:
        found[env.OPENBLAS] = env.BLAS_THREADS_PREFIX
    return found


def _sets_omp(clean: Container, overridden: Collection[str]) -> bool:
    """Whether a variable of OpenMP's, other than the count, is the user's and stays."""
    names = {entry.name for entry in clean.env if entry.name.startswith("OMP_")}
    return bool(names - {env.OMP, *overridden})


def _literals(clean: Container, composed: Composed, policy: Policy, image_env: Mapping[str, str]) -> families.Literals:
    """The variables of the policy's families that can't be references."""
    if composed.literals is not None and not clean.env and not image_env:
        return composed.literals
    sets = {**{entry.name: entry.value for entry in clean.env}, **environment.java_options(clean)[0]}
    return families.literals(composed.plan, policy, sets=sets, image_env=image_env)


def edits(
    clean: Container, found: Variables, annotations: Mapping[str, str], loading: Sequence[Edits], *, reports: bool
) -> Edits:
    """All changes of the container's environment; `annotations` are keys by prefix, `loading` the shim's own edits."""
    entries: list[Entry] = [
        environment.reference(name, annotations[prefix]) for name, prefix in found.references.items()
    ]
    entries.extend(environment.listing(clean, found.literals, found.completed, loading))
    others = list(loading)
    by_reference = environment.java_options(clean)[1] if JAVA_OPTIONS in found.literals else None
    for name, value in found.literals.items():
        if name == JAVA_OPTIONS and by_reference is not None:
            others.append(environment.renamed(clean, by_reference, value))
        else:
            entries.append(environment.literal(name, value))
    if reports:
        entries.append(environment.literal(env.REPORT, delivery.REPORT_PATH))
    return environment.combine(clean, entries, others)
