"""docs/images/machines has a current picture of each recorded machine, and nothing else."""

import pytest

import machines
from generate.docs import machinepictures as page


@pytest.fixture(scope="module")
def wanted():
    return page.files()


def test_the_pictures_are_current(wanted):
    assert {path.name: path.read_text() for path in page.TARGET.iterdir()} == wanted, "run `make generate`"


def test_every_recorded_machine_has_a_picture_on_the_page(wanted):
    assert {f"{name}.svg" for name in machines.names()} < set(wanted)
    assert all(f"![{name}]({name}.svg)" in wanted["README.md"] for name in machines.names())
