"""What goes into an image, by this environment's metadata."""

from cluster import binaries
from e2e import features, images


def test_the_image_of_raddle_has_what_the_operator_needs_and_what_that_needs():
    found = images.distributions(images.RADDLE_PACKAGES)
    assert {"aiohttp", "multidict", "kopf", "cryptography", "cffi", "psutil"} <= set(found)


def test_each_distribution_is_named_once():
    found = images.distributions((*images.RADDLE_PACKAGES, *images.APP_PACKAGES))
    assert len({name.lower().replace("_", "-") for name in found}) == len(found)


def test_no_image_has_the_developers_tools():
    found = images.distributions((*images.RADDLE_PACKAGES, *images.APP_PACKAGES))
    assert not {"pytest", "ruff", "mypy", "raddle"} & set(found)


def test_user_namespaces_are_said_to_be_missing_with_the_command_that_builds_what_they_need(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "python -m cluster build --containerd" in features.without_user_namespaces()
    for program in binaries.containerd():
        (program.folder(binaries.cache_folder()) / "bin").mkdir(parents=True)
    assert features.search_path().count("containerd") == 2


def test_a_containerd_of_its_own_folder_is_found_by_its_name():
    assert [program.commands for program in binaries.containerd()] == [("containerd",), ("containerd-shim-runc-v2",)]


def test_user_namespaces_need_a_runc_that_knows_them(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "search_path", lambda: str(tmp_path))
    runc = tmp_path / "runc"
    for version, reason in (("1.1.5+ds1", "runc 1.2 is not built"), ("1.2.0", ""), ("1.10.1", ""), ("2.0.0", "")):
        runc.write_text(f"#!/bin/sh\necho runc version {version}\n")
        runc.chmod(0o755)
        assert features.without_user_namespaces().startswith(reason)
        assert bool(features.without_user_namespaces()) == bool(reason)
