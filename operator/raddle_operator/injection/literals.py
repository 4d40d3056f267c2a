"""The variables of a policy for one container, that are no references to annotations.

The families are raddle.planning.families, and raddle.planning.values computes their values from a plan; here is what
becomes of them beside what the pod spec sets. Everything is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from raddle import env
from raddle.planning import templates
from raddle.planning.families import FAMILIES, JAVA_CPUS, ValueSource, Variable
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle.planning.values import computed

# What `literals` may set beside a policy's own variables, so what it has to be told of a container.
VARIABLES: Final = frozenset(
    variable.name
    for family in FAMILIES
    for variable in family.variables
    if variable.source is not ValueSource.REFERENCE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literals:
    """What a container gets beside its references.

    `values` are variables and their text, in the table's order; `kept` those that stay as the pod spec sets them;
    `added` are options for lists in one text, which only the shim knows whole: it adds them in the process.
    """

    values: Mapping[str, str]
    kept: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)


def overridden(plan: Plan, policy: Policy) -> frozenset[str]:
    """The variables of OpenMP that Raddle sets whatever the pod spec says: none unless the policy says Override.

    They are no choice of the user's that others follow: a second look at the pod would not find them.
    """
    if policy.existing_values != "Override":
        return frozenset()
    openmp = (v for v in of_policy(policy) if v.name.startswith("OMP_"))
    result = {v.name for v in openmp if computed(v.value, plan, policy) is not None}
    return frozenset(result | {env.OMP} if plan.omp is not None else result)


def literals(plan: Plan, policy: Policy, *, sets: Mapping[str, str | None]) -> Literals:
    """The variables of the policy's families for a container with this plan.

    `sets` holds what the pod spec sets, of `VARIABLES`, the policy's own and all OMP_*: name -> text, None where it
    comes from a reference. A value that the pod spec sets stays, unless the policy says Override, and a reference
    behind one of the policy's own variables always; an empty one counts as none. Values are plain positive integers,
    but for words of OpenMP (and block time, which may be 0), what the policy says itself, and Java's options.

    Nothing tells such a literal from a user's own: `sets` must be without those that Raddle itself has set, or a second
    look at a pod would keep old ones, and take its own OMP_WAIT_POLICY for the user's choice of OpenMP.
    """
    override = policy.existing_values == "Override"
    replaced = overridden(plan, policy)
    sets_omp = any(name.startswith("OMP_") and value != "" and name not in replaced for name, value in sets.items())
    values: dict[str, str] = {}
    kept: list[str] = []
    added: dict[str, str] = {}
    for variable in of_policy(policy):
        value = computed(variable.value, plan, policy)
        if value is None or (variable.over_omp and (sets_omp or value == plan.omp)):
            continue
        if variable.source is ValueSource.EXTENDS:
            # The last of Java's options of a name holds.
            if JAVA_CPUS in (sets.get(variable.name) or "") and not override:
                kept.append(variable.name)
            else:
                added[variable.name] = str(value)
        elif sets.get(variable.name, "") != "" and (not override or _referred(variable.name, sets)):
            kept.append(variable.name)
        else:
            values[variable.name] = str(value)
    return Literals(values=values, kept=tuple(kept), added=added)


def of_policy(policy: Policy) -> tuple[Variable, ...]:
    """The policy's variables that are no references, each once: its families', then its own."""
    return (*_of_families(policy.runtimes), *_own(policy)) if policy.variables else _of_families(policy.runtimes)


def _own(policy: Policy) -> tuple[Variable, ...]:
    """The variables that the policy defines itself."""
    return tuple(
        Variable(name=name, rule=template, value=templates.value(template)) for name, template in policy.variables
    )


def _referred(name: str, sets: Mapping[str, str | None]) -> bool:
    """Whether a variable that no family has comes from a reference, which may be a secret: it is the user's always."""
    return name not in VARIABLES and sets[name] is None


@lru_cache(maxsize=256)
def _of_families(runtimes: tuple[str, ...]) -> tuple[Variable, ...]:
    result = (variable for family in FAMILIES if family.name in runtimes for variable in family.variables)
    return tuple({v.name: v for v in result if v.source is not ValueSource.REFERENCE}.values())
