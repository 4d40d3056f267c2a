"""`raddle analyze`: what a model is made of, before any trial. Needs no cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from raddle_operator.cli import output

EPILOG = """\b
Examples:
  raddle analyze model.onnx
  raddle analyze model.onnx --shape image=8,3,224,224
  raddle analyze model.onnx --inputs request.npz -o json
  raddle analyze model.onnx --svg path.svg            the critical path as a picture
  raddle run --limit 4 -- raddle analyze model.onnx   with the CPUs of a container
  raddle analyze model.pt                             TorchScript; needs torch

\b
Exit codes: 0 success; 2 invalid input: the model does not load, or the inputs do not fit; 130 interrupted by Ctrl-C.
"""


@click.command(epilog=EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--shape", "shapes", multiple=True, metavar="NAME=DIMS", help="Shape of an input: image=1,3,224,224.")
@click.option(
    "--inputs",
    "npz",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz file with the inputs. Default: generated, with 1 for dynamic dimensions.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the critical path into this file.")
@click.option("-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "json", "yaml"]))
def analyze(model: Path, shapes: tuple[str, ...], npz: Path | None, svg: Path | None, form: str) -> None:
    """Show the operators of MODEL (.onnx or TorchScript), which scale with threads, and which run in parallel."""
    if shapes and npz:
        raise click.UsageError("--shape and --inputs exclude each other")
    from raddle_tuner.commands.analyze import document, reading, text
    from raddle_tuner.trials import ending

    try:
        with ending.signals():
            result = reading.analysis_of(model, shapes, npz)
    except ending.EndedError as ended:
        sys.exit(ended.status)
    if svg is not None:
        text.write_picture(svg, model, result)
    if form == "text":
        text.write(model, result)
    else:
        output.write(document.document(result), form)
