"""What is derived is current."""

import subprocess
import sys

import pytest

from generate.files import FILES, PICTURES
from report import ROOT

METRICS = ROOT / "docs/reference/metrics.md"


@pytest.mark.parametrize("path", sorted(FILES.keys() - {METRICS}), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_derived_file_is_what_it_is_derived_from(path):
    assert path.read_text() == FILES[path](), "run `make generate`"


def test_the_page_of_metrics_is_what_a_process_shows_that_has_counted_nothing():
    # In a process of its own: the registry keeps what other tests have counted in this one.
    code = "import sys; from generate.docs import metrics; sys.stdout.write(metrics.render())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert METRICS.read_text() == made, "run `make generate`"


def test_no_picture_is_of_a_machine_that_is_no_more():
    assert set(PICTURES.iterdir()) <= set(FILES), "run `make generate`"
