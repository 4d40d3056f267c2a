"""Makes docs/reference/families.md: the runtime families and their variables, from the operator's one table."""

from __future__ import annotations

from raddle.planning.families import DEFAULT, FAMILIES, ValueSource, Variable

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/families.py) from
runtime/raddle/planning/families.py: edit those. -->

# Runtime families

A policy's `runtimes` names the families that get values. Without it these do: {default}.
The others change more than inference, or are right by themselves in most containers, so they are chosen by name.

| family | read by | name it where |
|---|---|---|
"""
VARIABLES = """
## Variables

| variable | families | value | comes from |
|---|---|---|---|
"""
_COMES_FROM = {
    ValueSource.REFERENCE: "an annotation, so the node's value when the pod is bound",
    ValueSource.LITERAL: "the pod spec: the safe value, valid on any node",
    ValueSource.EXTENDS: "the shim, in the process: an option more",
}
_OVER_OMP = "; only where it differs from `OMP_NUM_THREADS`, and where the pod spec sets no `OMP_*`"
FOOTER = """
## Rules

- What the pod spec sets itself stays, unless the policy says `existingValues: Override`. What the image sets can't be
  seen and is replaced. Only `JAVA_TOOL_OPTIONS` is never replaced: where a Java process starts, the shim adds an option
  to what is there; without the shim it is left alone. Java prints one line, `Picked up JAVA_TOOL_OPTIONS: …`, on
  standard error.
- A variable that beats `OMP_NUM_THREADS` would also beat `export OMP_NUM_THREADS=1` in an entrypoint, and what
  torchrun and joblib choose for their processes. So it is set only for a family that the policy names, and only where
  its value differs. torch takes its own count from `MKL_NUM_THREADS` before `OMP_NUM_THREADS`, so where a policy has
  `torch`, MKL never gets less than OpenMP.
- Never set: `NUMEXPR_MAX_THREADS` (a hard cap), `MKL_DYNAMIC`, and `OMP_PROC_BIND` and `OMP_PLACES`. These tie the
  program's first thread to one place, and every thread and process that it starts later inherits that: ONNX Runtime's
  pool and a data loader's workers would share one CPU. With exclusive CPUs the cpuset itself keeps a team in its place.
- joblib hands the `OMP_NUM_THREADS` that it finds to each of its processes. With `joblib` among the runtimes that is 1,
  and `n_jobs=-1` means the container's CPUs; with `threads.intraOp: 2` it is 2, and `n_jobs=-1` half of them.
- Only variables whose readers take an empty value for none come from an annotation, since a pod can be copied without
  its annotations. tokio and joblib, for example, end the process there. One reader of `OMP_NUM_THREADS` does so too:
  LLVM's OpenMP as Debian builds it. It takes a pod that lost its annotation while Raddle's webhook did not run. GCC's,
  which PyTorch and scikit-learn bring along, and Intel's go on; Python's shim takes the empty variable away first.
- `nproc` honours `OMP_NUM_THREADS`.
"""


def render() -> str:
    """The page, as Markdown."""
    text = HEADER.format(default=", ".join(f"`{name}`" for name in DEFAULT))
    text += "".join(f"| `{family.name}` | {family.readers} | {family.worth} |\n" for family in FAMILIES)
    text += VARIABLES
    for variable, families in _variables().items():
        rule = variable.rule + (_OVER_OMP if variable.over_omp else "")
        text += f"| `{variable.name}` | {', '.join(families)} | {rule} | {_COMES_FROM[variable.source]} |\n"
    return text + FOOTER


def _variables() -> dict[Variable, list[str]]:
    """Each variable, and the families that have it."""
    result: dict[Variable, list[str]] = {}
    for family in FAMILIES:
        for variable in family.variables:
            result.setdefault(variable, []).append(f"`{family.name}`")
    return result
