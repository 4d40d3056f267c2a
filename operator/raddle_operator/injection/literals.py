"""The variables of a policy for one container, that are no references to annotations.

The families and how a variable's value comes from a plan are raddle.planning.families; here is what becomes of them
beside what the pod spec and the image set. Everything is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from raddle import env
from raddle.planning.families import FAMILIES, ValueSource, Variable, own
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle.planning.values import JAVA_CPUS
from raddle_operator.objects.reasons import Skip, SkipReason

_JAVA_CPUS_SET = re.compile(r"\s*-XX:ActiveProcessorCount=\S*")
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
    `withheld` why a variable can't be given, and `left` what would be added to it by who knows its text.
    """

    values: Mapping[str, str]
    kept: tuple[str, ...] = ()
    withheld: tuple[Skip, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


def overridden(plan: Plan, policy: Policy) -> frozenset[str]:
    """The variables of OpenMP that Raddle sets whatever the pod spec says: none unless the policy says Override.

    They are no choice of the user's that others follow: a second look at the pod would not find them.
    """
    if policy.existing_values != "Override":
        return frozenset()
    openmp = (v for v in of_policy(policy) if v.name.startswith("OMP_"))
    found = {v.name for v in openmp if v.value(plan, policy) is not None}
    return frozenset(found | {env.OMP} if plan.omp is not None else found)


def literals(plan: Plan, policy: Policy, *, sets: Mapping[str, str | None], image_env: Mapping[str, str]) -> Literals:
    """The variables of the policy's families for a container with this plan.

    `sets` holds what the pod spec sets, of `VARIABLES`, the policy's own and all OMP_*: name -> text, None where it
    comes from a reference. `image_env` is the policy's imageEnv. A value that the pod spec sets stays, unless the
    policy says Override, and a reference behind one of the policy's own variables always; an empty one counts as none.
    Values are plain positive integers, but for words of OpenMP (and block time, which may be 0), what the policy says
    itself, and Java's options.

    Nothing tells such a literal from a user's own: `sets` must be without those that Raddle itself has set, or a second
    look at a pod would keep old ones, and take its own OMP_WAIT_POLICY for the user's choice of OpenMP.
    """
    override = policy.existing_values == "Override"
    replaced = overridden(plan, policy)
    sets_omp = any(name.startswith("OMP_") and value != "" and name not in replaced for name, value in sets.items())
    values: dict[str, str] = {}
    kept: list[str] = []
    withheld: list[Skip] = []
    left: dict[str, str] = {}
    for variable in of_policy(policy):
        value = variable.value(plan, policy)
        if value is None or (variable.over_omp and (sets_omp or value == plan.omp)):
            continue
        if variable.source is ValueSource.EXTENDS:
            extended = _extended(variable.name, str(value), sets, image_env, override=override)
            if isinstance(extended, Skip):
                withheld.append(extended)
                left[variable.name] = str(value)
            elif extended is None:
                kept.append(variable.name)
            else:
                values[variable.name] = extended
        elif sets.get(variable.name, "") != "" and (not override or _referred(variable.name, sets)):
            kept.append(variable.name)
        else:
            values[variable.name] = str(value)
    return Literals(values=values, kept=tuple(kept), withheld=tuple(withheld), left=left)


def of_policy(policy: Policy) -> tuple[Variable, ...]:
    """The policy's variables that are no references, each once: its families', then its own."""
    return (*_of_families(policy.runtimes), *own(policy)) if policy.variables else _of_families(policy.runtimes)


def _referred(name: str, sets: Mapping[str, str | None]) -> bool:
    """Whether a variable that no family has comes from a reference, which may be a secret: it is the user's always."""
    return name not in VARIABLES and sets[name] is None


@lru_cache(maxsize=256)
def _of_families(runtimes: tuple[str, ...]) -> tuple[Variable, ...]:
    found = (variable for family in FAMILIES if family.name in runtimes for variable in family.variables)
    return tuple({v.name: v for v in found if v.source is not ValueSource.REFERENCE}.values())


def _extended(
    name: str, option: str, sets: Mapping[str, str | None], image_env: Mapping[str, str], *, override: bool
) -> str | Skip | None:
    """The variable's text with Java's option; None where the user's own stays; or why it can't be extended."""
    if name in sets:
        present = sets[name]
        if present is None:
            return _unknown(f"the pod spec takes {name} from a reference that may be absent")
    elif name in image_env:
        # Kubernetes expands what it reads here, and the image's value is meant as it is.
        present = image_env[name].replace("$", "$$")
    else:
        return _unknown(f"set imageEnv.{name} in the policy to what the image sets (empty: nothing)")
    if JAVA_CPUS in present and not override:
        return None
    rest = _JAVA_CPUS_SET.sub("", present).strip() if JAVA_CPUS in present else present
    return f"{rest} {option}" if rest else option


def _unknown(detail: str) -> Skip:
    return Skip(reason=SkipReason.IMAGE_ENV_UNKNOWN, detail=detail)
