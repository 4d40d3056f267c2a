"""Writes everything in the checkout that is derived from something else; tests check that it is current."""

from __future__ import annotations

import argparse
import sys

from generate import chart, crds, dashboard, keys
from generate.docs import apireference, chartvalues, families, machinepictures, metrics, placement, reach, skipreasons

# In this order: the reference reads the CRDs, and the chart holds them.
GENERATORS = (
    keys.main,
    crds.main,
    apireference.main,
    families.main,
    metrics.main,
    placement.main,
    reach.main,
    skipreasons.main,
    machinepictures.main,
    dashboard.main,
    chart.main,
    chartvalues.main,
)


def main() -> int:
    """Run every generator; 0 when all of them did what they should."""
    argparse.ArgumentParser(prog="python -m generate", description=__doc__).parse_args()
    return max(generate() for generate in GENERATORS)


if __name__ == "__main__":
    sys.exit(main())
