"""Which existing programs may stand in, and how the version in a program's answer is read."""

import pytest

from cluster import binaries
from cluster.toolchain import parse_go_version
from cluster.versions import DEFAULT_HELM, Version, fits

WANTED = Version(1, 34, 4)


@pytest.mark.parametrize(
    ("component", "found", "expected"),
    [
        ("kube-apiserver", "1.34.0", True),
        ("kube-apiserver", "1.34.9", True),
        ("kube-apiserver", "1.33.9", False),
        ("kube-apiserver", "1.35.0", False),
        ("kube-apiserver", "2.34.4", False),
        ("kube-scheduler", "1.34.1", True),
        ("kube-scheduler", "1.33.1", False),
        ("kube-controller-manager", "1.35.1", False),
        ("kubelet", "1.34.1", True),
        ("kubelet", "1.33.1", False),
        ("kubectl", "1.33.0", True),
        ("kubectl", "1.34.9", True),
        ("kubectl", "1.35.0", True),
        ("kubectl", "1.32.9", False),
        ("kubectl", "1.36.0", False),
        ("kubectl", "0.34.0", False),
        ("etcd", "3.4.99", False),
        ("etcd", "3.5.0", True),
        ("etcd", "3.6.4", True),
        ("etcd", "4.0.0", False),
    ],
)
def test_a_program_fits_as_the_skew_policy_says(component, found, expected):
    assert fits(component, Version.parse(found), WANTED) is expected


@pytest.mark.parametrize(
    ("found", "expected"), [("3.19.0", True), ("3.20.1", True), ("3.18.6", False), ("4.0.0", False)]
)
def test_helm_fits_from_the_wanted_minor_on(found, expected):
    assert fits("helm", Version.parse(found), DEFAULT_HELM) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Kubernetes v1.34.4", Version(1, 34, 4)),
        ("etcd Version: 3.6.4\nGit SHA: abc\nGo Version: go1.26.8", Version(3, 6, 4)),
        ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", Version(1, 32, 4)),
        ("v3.19.5+g1234567", Version(3, 19, 5)),
        ("1.36.3", Version(1, 36, 3)),
    ],
)
def test_the_first_version_of_an_answer_counts(answer, expected):
    assert Version.parse(answer) == expected


@pytest.mark.parametrize("answer", ["", "Kubernetes", "1.34", "v1"])
def test_an_answer_without_a_version_is_refused_with_what_was_there(answer):
    with pytest.raises(ValueError, match=r"expected major\.minor\.patch") as raised:
        Version.parse(answer)
    assert repr(answer) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("go1.26.8\n", (1, 26)), ("go1.27", (1, 27)), ("module raddle.dev/x\n\ngo 1.24.0\n", (1, 24))],
)
def test_go_versions_are_read_from_the_program_and_from_a_module_file(text, expected):
    assert parse_go_version(text) == expected


def test_only_programs_on_the_path_that_fit_are_used(tmp_path):
    for name in ("etcd", "kubectl", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "kube-scheduler").touch(mode=0o644)  # not executable
    versions = {"etcd": Version(3, 5, 1), "kubectl": Version(1, 30, 0), "kube-apiserver": None}
    found = binaries.existing(
        binaries.CONTROL_PLANE, WANTED, str(tmp_path), version_of=lambda command, program: versions[command]
    )
    assert found == {"etcd": tmp_path / "etcd"}


def test_an_empty_path_holds_nothing():
    assert binaries.existing(binaries.CONTROL_PLANE, WANTED, "", version_of=lambda command, program: WANTED) == {}
