"""docs/reference/api.md is made from the CRDs, is current, and leaves nothing out."""

import pytest
import yaml

from generate.docs import apireference
from raddle.planning import families


def test_every_field_has_a_row_of_five_cells():
    for line in apireference.render(apireference.load()).splitlines():
        if line.startswith("| `"):
            assert line.count("|") == 6, line


@pytest.mark.parametrize(
    "row",
    [
        "| `podSelector` | object | required |  | The pods",
        "| `threads.intraOp` | integer |  | 1 to 1024 | Threads that execute",
        "| `threads.minIntraOp` | integer | `1` | 1 to 1024 | Lower bound",
        "| `objective` | string | `Latency` | `Latency`, `Throughput` | Optimization goal",
        "| `onnxruntime.globalThreadPool` | boolean | `false` |  | Whether",
        "| `onnxruntime.providerOptions` | map of map of string |  | at most 16 entries | Options",
        f"| `runtimes` | list of string |  | 1 to {len(families.NAMES)} items; each `onnxruntime`, `torch`, `openmp`, `blas`, `mkl`,",
        "| `tier` | string | `Baseline` | `Admin`, `Baseline` | Precedence",
        "| `numaNodes[].memoryMiB` | integer |  | at least 0 | Its memory",
    ],
)
def test_a_row_says_type_default_and_what_is_allowed(row):
    assert f"\n{row}" in apireference.render(apireference.load())


def test_a_changed_field_changes_the_page():
    crds = apireference.load()
    before = apireference.render(crds)
    text = yaml.safe_dump_all(crds).replace("maximum: 1024", "maximum: 512")
    assert apireference.render(list(yaml.safe_load_all(text))) != before
