"""Writes everything in the checkout that is derived from something else; tests check that it is current."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

from generate import chart, crds, dashboard, keys
from generate.docs import apireference, chartvalues, families, machinepictures, metrics, reach, skipreasons

REPOSITORY = Path(__file__).resolve().parents[2]


class Page(Protocol):
    """A module that makes one page: where it lies, and its text."""

    TARGET: Path

    def render(self) -> str:
        """The page."""


def write(page: Page) -> int:
    """Write the page; 0 always."""
    page.TARGET.write_text(page.render())
    print(f"wrote {page.TARGET.relative_to(REPOSITORY)}")
    return 0


# In this order: the reference reads the CRDs, and the chart holds them.
GENERATORS = (
    keys.main,
    crds.main,
    apireference.main,
    partial(write, families),
    partial(write, metrics),
    reach.main,
    partial(write, skipreasons),
    machinepictures.main,
    dashboard.main,
    chart.main,
    partial(write, chartvalues),
)


def main() -> int:
    """Run every generator; 0 when all of them did what they should."""
    argparse.ArgumentParser(prog="python -m generate", description=__doc__).parse_args()
    return max(generate() for generate in GENERATORS)


if __name__ == "__main__":
    sys.exit(main())
