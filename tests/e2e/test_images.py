"""What goes into an image, by this environment's metadata."""

from e2e import images


def test_the_image_of_raddle_has_what_the_operator_needs_and_what_that_needs():
    found = images.distributions(images.RADDLE_EXTRAS)
    assert {"aiohttp", "multidict", "kopf", "cryptography", "cffi", "psutil"} <= set(found)


def test_each_distribution_is_named_once():
    found = images.distributions((*images.RADDLE_EXTRAS, *images.APP_EXTRAS))
    assert len({name.lower().replace("_", "-") for name in found}) == len(found)


def test_no_image_has_the_developers_tools():
    found = images.distributions((*images.RADDLE_EXTRAS, *images.APP_EXTRAS))
    assert not {"pytest", "ruff", "mypy", "raddle"} & set(found)
