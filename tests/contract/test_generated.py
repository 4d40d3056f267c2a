"""What is derived is current."""

import pytest

from generate.files import FILES, PICTURES
from report import ROOT


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_derived_file_is_what_it_is_derived_from(path):
    assert path.read_text() == FILES[path](), "run `make generate`"


def test_no_picture_is_of_a_machine_that_is_no_more():
    assert set(PICTURES.iterdir()) <= set(FILES), "run `make generate`"
