"""What is left of a damaged ConfigMap, and what a process may differ in, without a node."""

import pytest

from e2e import door, imagevolumes, usernamespaces
from raddle import delivery

LIBRARY = "native.x86_64.libraddle.so"
WHOLE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "raddle-shim-1", "namespace": "models", "uid": "1", "labels": {"raddle.dev/shim": "1"}},
    "immutable": True,
    "data": {delivery.PRELOAD_KEY: "/opt/raddle/libraddle.so", "raddle.env.py": "", "sitecustomize.py": ""},
    "binaryData": {LIBRARY: "AA=="},
}
STOCK = {"path": ["/a"], "modules": ["sys"], "arguments": ["-c"], "descriptors": ["0", "1"], "environment": {"A": "1"}}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("without-library", {delivery.PRELOAD_KEY, "raddle.env.py", "sitecustomize.py"}),
        ("without-line", {"raddle.env.py", "sitecustomize.py", LIBRARY}),
        ("without-python", {delivery.PRELOAD_KEY, LIBRARY}),
    ],
)
def test_a_damaged_config_map_has_its_name_and_some_of_its_keys(name, keys):
    (damage,) = (one for one in door.DAMAGES if one.name == name)
    found = door.part_of(WHOLE, damage.keep)
    assert found["metadata"] == {"name": "raddle-shim-1", "namespace": "models"}
    assert {*found["data"], *found["binaryData"]} == keys
    assert len(WHOLE["data"]) == 3


def test_a_process_may_differ_in_what_its_pod_sets_and_in_its_host_name():
    found = {**STOCK, "environment": {"A": "1", "RADDLE_PLAN": "v=1", "HOSTNAME": "door"}}
    assert door.differences(STOCK, found, {"RADDLE_PLAN": ""}) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "the process said nothing"),
        ({**STOCK, "path": ["/opt/raddle/python", "/a"]}, "path ['/opt/raddle/python', '/a'], without Raddle ['/a']"),
        ({**STOCK, "descriptors": ["0", "1", "3"]}, "descriptors ['0', '1', '3'], without Raddle ['0', '1']"),
        ({**STOCK, "environment": {"A": "1", "B": "2"}}, "environment {'B': '2'}"),
    ],
)
def test_what_else_a_process_differs_in_is_said(found, said):
    assert door.differences(STOCK, found, {}) == [said]


def test_user_namespaces_need_a_runc_that_knows_them(tmp_path, monkeypatch):
    monkeypatch.setattr(imagevolumes, "search_path", lambda: str(tmp_path))
    runc = tmp_path / "runc"
    for version, reason in (("1.1.5+ds1", "runc 1.2 is not built"), ("1.2.0", ""), ("1.10.1", ""), ("2.0.0", "")):
        runc.write_text(f"#!/bin/sh\necho runc version {version}\n")
        runc.chmod(0o755)
        assert usernamespaces.unavailable().startswith(reason)
        assert bool(usernamespaces.unavailable()) == bool(reason)
