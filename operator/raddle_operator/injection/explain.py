"""What a pod's annotations say of it, for `raddle explain`: why a container has the number it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raddle import env
from raddle.planning import wire
from raddle.planning.templates import PLACEHOLDERS
from raddle_operator.injection import plan_annotations
from raddle_operator.objects.reasons import Skip
from raddle_operator.presets.rows import Preset


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExplanation:
    """One container: its plan's values, each with the input that decided it.

    `node` is the node that the plan was made for, None for safe values; `planned_cpus` the limit that it counted with,
    None without one; `variables` are the environment variables that Raddle sets, with the values that they have when a
    container starts now, `reasons` why some are what they are;
    `kept` those that stay as the pod spec sets them. `tuned` is the InferenceTuning whose result
    the plan follows, "" for none; because["tuned"] says why, where the policy names one. `withheld` is what the
    container does not get, and why. `preset` says which known server it runs, in a line; "" for none.
    `problem` is why the plan can't be read, "" where it can.
    """

    container: str
    governed_by: str = ""
    node: str | None = None
    planned_cpus: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    because: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    tuned: str = ""
    withheld: tuple[Skip, ...] = ()
    preset: str = ""
    problem: str = ""


def explain(
    annotations: Mapping[str, str],
    literals: Mapping[str, Mapping[str, str]] | None = None,
    withheld: Mapping[str, tuple[Skip, ...]] | None = None,
    presets: Mapping[str, str] | None = None,
) -> list[ContainerExplanation]:
    """One explanation for each container that has a plan, in the annotations' order. Never raises.

    `literals` are what Raddle has set in a container's environment itself (injected.literals_of), by container;
    `withheld` what a decision on the pod does not give it, `presets` the known server that it runs, in a line.
    """
    result = []
    for key, text in annotations.items():
        prefix, container = plan_annotations.split(key)
        if prefix == env.PLAN_PREFIX:
            explained = _explain(container, text, annotations, (literals or {}).get(container, {}))
            skips, preset = (withheld or {}).get(container, ()), (presets or {}).get(container, "")
            result.append(replace(explained, withheld=skips, preset=preset))
    return result


def _explain(
    container: str, text: str, annotations: Mapping[str, str], literals: Mapping[str, str]
) -> ContainerExplanation:
    prefixes = {**{name: prefix for name, (prefix, _) in plan_annotations.COUNTS.items()}, env.PLAN: env.SHIM_PREFIX}
    variables = {
        name: annotations[prefix + container] for name, prefix in prefixes.items() if prefix + container in annotations
    }
    variables.update(completed(variables.get(env.PLAN, "")))
    variables.update(literals)
    try:
        recorded = wire.read_plan_text(text)
    except wire.WireError as error:
        return ContainerExplanation(container=container, variables=variables, problem=str(error))
    kept = plan_annotations.kept_in(recorded.because)
    return ContainerExplanation(
        container=container,
        governed_by=recorded.governed_by,
        node=recorded.node,
        planned_cpus=recorded.budget.quota_cpus,
        values=recorded.values,
        because={name: why for name, why in recorded.because.items() if name not in kept},
        variables=variables,
        reasons=own_variables(recorded, literals),
        kept=kept,
        tuned=recorded.tuning.by if recorded.tuning is not None else "",
    )


def completed(shim_text: str) -> Mapping[str, str]:
    """The counts that the shim completes in a process which lacks them (runtime/native/door.c); {} without a plan."""
    try:
        fields = env.decode(shim_text)
    except env.PlanError:
        return {}
    counts = {
        env.ORT_INTRA: fields.get("intra_op_without_shim", fields.get("intra_op")),
        env.ORT_INTER: fields.get("inter_op"),
        env.OMP: fields.get("omp"),
        env.OPENBLAS: None if "omp" in fields else fields.get("blas"),
    }
    return {name: str(count) for name, count in counts.items() if count is not None}


def preset(row: Preset | None, advice: str) -> str:
    """Which known server a container runs, and what its user should do; "" for none."""
    if row is None:
        return ""
    return f"{row.title}: {advice}" if advice else row.title


def own_variables(recorded: wire.RecordedPlan | None, literals: Mapping[str, str]) -> Mapping[str, str]:
    """Why a variable that no family has is what it is: name to what its template means, for those of `literals`."""
    result = recorded.policy.variables if recorded is not None else ()
    return {name: _meaning(template) for name, template in result if name in literals}


def _meaning(template: str) -> str:
    placeholder = PLACEHOLDERS.get(template)
    return f"{template}: {placeholder.meaning}" if placeholder else "set by the policy"


def tuning(tuned: str, because: Mapping[str, str]) -> str:
    """What a tuning comes to in a plan, with its reasons, in a line; "" where its policy names none."""
    said = because.get(wire.TUNED, "")
    return f"{'tuned' if tuned else 'not tuned'}: {said}" if said else ""


def spinning(values: Mapping[str, Any]) -> str:
    """How a plan's workers wait, in a table's words; "–" where its values don't say."""
    result = str(values.get("spinning", "–"))
    if "spinDurationUs" in values:
        result += f" {values['spinDurationUs']} µs"
    if "exclusiveSpinning" in values:
        result += f", {values['exclusiveSpinning']} on exclusive CPUs"
    return result
