"""Makes docs/reference/families.md: the runtime families and their variables, from the operator's one table."""

from __future__ import annotations

from raddle.planning.families import DEFAULT, FAMILIES, ValueSource, Variable

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/families.py) from
runtime/raddle/planning/families.py: edit those. -->

# Runtime families

A family is a group of runtimes that read the same variables. A policy's `runtimes` lists the families that get values;
the default is {default}. The others affect more than inference, or are correct by default in most
containers, so a policy has to name them.

| family | read by | name it if |
|---|---|---|
"""
VARIABLES = """
## Variables

| variable | families | value | comes from |
|---|---|---|---|
"""
_COMES_FROM = {
    ValueSource.REFERENCE: "the value for the node, from the binding",
    ValueSource.LITERAL: "the safe value, valid on any node",
    ValueSource.EXTENDS: "the safe value, as an additional option",
}
_OVER_OMP = "; only if it differs from `OMP_NUM_THREADS`, and the pod spec sets no `OMP_*`"
FOOTER = """
## Rules

- With the shim, [each process gets the variables that it
  lacks](../explanation/preload-injection.md#which-variables-a-process-gets-and-who-sees-them): values of the image, the
  pod spec and a framework are kept. Only `GOMAXPROCS` and a policy's own `variables` are in the pod spec, and replace
  the image's. What each framework does with a variable is in [frameworks and variables](frameworks.md).
- Without the shim, or with `existingValues: Override`, all are in the pod spec. Without `Override`, values that the pod
  spec sets are kept. The webhook can't see values of the image, and replaces them.
- `JAVA_TOOL_OPTIONS` is never replaced: when a Java process starts, the shim appends an option; without the shim it is
  not changed. Java prints a line `Picked up JAVA_TOOL_OPTIONS: …` on standard error.
- A variable that takes precedence over `OMP_NUM_THREADS` would also override `export OMP_NUM_THREADS=1` in an
  entrypoint, and the values of torchrun and joblib for their processes. So it is set only for a family that the policy
  names, and only if its value differs. torch reads `MKL_NUM_THREADS` before `OMP_NUM_THREADS`, so if a policy has
  `torch`, MKL never gets fewer threads than OpenMP.
- Never set: `NUMEXPR_MAX_THREADS` (a hard cap), `MKL_DYNAMIC`, and `OMP_PROC_BIND` and `OMP_PLACES`. The last two bind
  the program's first thread to one place, which every later thread and process inherits: ONNX Runtime's pool and a data
  loader's workers would share one CPU. Exclusive CPUs need no binding, because the cpuset limits the threads.
- Without the shim, joblib passes the pod's `OMP_NUM_THREADS` to each of its processes. So it is 1 with `joblib` among
  the runtimes, unless the policy states `threads.intraOp`.
- A pod can be copied without its annotations, and its variables from annotations are then empty. So a variable comes
  from an annotation only if its readers ignore an empty value; tokio and joblib, for example, exit. One reader of
  `OMP_NUM_THREADS` also exits: Debian's build of LLVM's OpenMP, if the pod was created while Raddle's webhook did not
  run. GCC's OpenMP (in PyTorch and scikit-learn) and Intel's ignore it, and Python's shim removes the variable first.
- `nproc` uses `OMP_NUM_THREADS`, also the one that the shim completes for it.
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
