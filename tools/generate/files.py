"""Which files are derived, and what makes the text of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import machines
from generate import chart, crds, dashboard, keys, libraries, supported
from generate.docs import (
    apireference,
    chartvalues,
    families,
    machinepictures,
    metrics,
    presets,
    reach,
    servers,
    skipreasons,
    tuningpictures,
    watchpictures,
)
from report import ROOT

REFERENCE = ROOT / "docs" / "reference"
PICTURES = ROOT / "docs" / "images" / "machines"
GOLDEN = ROOT / "tests" / "chart" / "golden"

# In this order: the reference reads the CRDs, and the chart holds them.
FILES: Final[Mapping[Path, Callable[[], str]]] = {
    ROOT / "runtime" / "raddle" / "keys.py": keys.python,
    ROOT / "runtime" / "native" / "keys.h": keys.c,
    ROOT / "runtime" / "native" / "libraries.h": libraries.c,
    ROOT / "crds" / "inferencethreadings.yaml": crds.namespaced,
    ROOT / "crds" / "clusterinferencethreadings.yaml": crds.cluster,
    REFERENCE / "api.md": apireference.render,
    REFERENCE / "families.md": families.render,
    REFERENCE / "metrics.md": metrics.render,
    REFERENCE / "presets.md": presets.render,
    REFERENCE / "skip-reasons.md": skipreasons.render,
    reach.PAGE: reach.page,
    REFERENCE / "servers.md": servers.page,
    REFERENCE / "supported.md": supported.page,
    **{PICTURES / f"{name}.svg": partial(machinepictures.picture, name) for name in machines.names()},
    PICTURES / "example.svg": machinepictures.example,
    PICTURES / "README.md": machinepictures.page,
    ROOT / "docs" / "images" / "tuning" / "example.svg": tuningpictures.pictures,
    ROOT / "docs" / "images" / "watch" / "node.svg": watchpictures.node,
    chart.CHART / "files" / "monitoring" / "dashboard.json": dashboard.render,
    GOLDEN / "default.yaml": partial(chart.render, chart.DEFAULT),
    **{
        GOLDEN / f"{name}.diff": partial(chart.difference, values)
        for name, values in chart.CASES.items()
        if name != "default"
    },
    REFERENCE / "chart-values.md": chartvalues.render,
}
