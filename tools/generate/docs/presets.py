"""Makes docs/reference/presets.md from operator/raddle_operator/presets/presets.yaml."""

from __future__ import annotations

from raddle.planning.templates import PLACEHOLDERS
from raddle_operator.presets.rows import Preset, presets

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/presets.py) from
operator/raddle_operator/presets/presets.yaml: edit that. -->

# Presets

A preset is a row of settings for a server that Raddle recognises, by its image (repository and name, in any registry)
or by the program in the container's command. A container gets the values of the first row that matches. `raddle presets
NAME` shows all of a row; `raddle plan` and `kubectl raddle explain` name the row of a container. [Servers](servers.md)
has measurements; [add a server](../contributing/add-a-server.md) explains how to extend this table.

- Values in the pod spec take precedence, as for [families](families.md), and a policy's own `variables` over those of a
  row.
- The families of a row replace the default ones if the policy has no `runtimes`.
- A variable is not set if a flag in the command takes precedence over it, or if the pod spec has an older name of it,
  such as LocalAI's `THREADS`. `raddle plan` says so.
- `presets: Never` in a policy disables presets.
- *Left alone*: the container gets no values, with the skip reason [ManagedByServer](skip-reasons.md). A policy that
  names the container in `containers` sets values anyway.

| preset | recognised by | values | remarks |
|---|---|---|---|
"""
OWN = """
## Variables of your own

For a server that is not in the table, add a variable to a policy:

```yaml
spec:
  variables:
    LLAMA_ARG_THREADS: "{threads}"
```

| placeholder | value |
|---|---|
"""
FOOTER = """
A value is one placeholder or one whole number, and a name must be the name of a count: policies can't set paths,
switches or permissions. Variables are set when the pod is created, from the values that are valid on any node. Values
in the pod spec are kept, unless the policy has `existingValues: Override`; a value from a Secret or ConfigMap is always
kept. For a number of processes, such as `WEB_CONCURRENCY: "{workers}"`, also set `budget.workersPerContainer`, so that
the CPUs are divided among them.
"""


def render() -> str:
    """The page, as Markdown."""
    rows = "".join(map(_row, presets()))
    return HEADER + rows + OWN + "".join(f"| `{n}` | {one.meaning} |\n" for n, one in PLACEHOLDERS.items()) + FOOTER


def _row(row: Preset) -> str:
    kind = {None: "", True: "; with a GPU or the like", False: "; without one"}[row.accelerator]
    names = ", ".join(f"`{name}`" for name in (*row.images, *row.commands))
    unless = ", ".join(f"`{name}={value}`" for name, value in row.unless.items())
    variables = ", ".join(f"`{name}: {value}`" for name, value in row.variables.items())
    families = f"families {', '.join(row.runtimes)}" if row.runtimes else ""
    gets = "; ".join(filter(None, (variables, families))) or "the default families"
    if row.alone:
        gets = "nothing: it is left alone" + (f", unless the pod spec has {unless}; then {gets}" if unless else "")
    know = ". ".join(filter(None, (row.alone, row.advice)))
    return f"| [{row.name}]({row.source}) | {names}{kind} | {gets} | {know} |\n"
