"""The tables of runtimes and of Kubernetes: what they say of versions, and when they are out of date."""

import pytest

from generate import supported


def of(runtime, *versions, control="counts"):
    return {(runtime, version, control) for version in versions}


@pytest.mark.parametrize(
    ("proven", "cell"),
    [
        (["1.16.3", "1.20.1", "1.31.1"], "yes"),
        (["1.20.1", "1.31.1"], "from 1.20.1"),
        (["1.16.3", "1.31.1"], "all but 1.20.1"),
        (["1.16.3"], "1.16.3"),
    ],
)
def test_a_cell_says_for_which_of_the_tested_versions_a_control_is_proven(proven, cell):
    proofs = of("ONNX Runtime (Python)", "1.16.3", "1.20.1", "1.31.1") | of(
        "ONNX Runtime (Python)", *proven, control="spinning"
    )
    row = supported.table(proofs).splitlines()[2].split("|")
    assert [text.strip() for text in row[1:4]] == ["ONNX Runtime (Python)", "1.16.3, 1.20.1, 1.31.1", "yes"]
    assert row[4].strip() == cell


def test_other_runtimes_have_a_table_without_the_columns_that_they_leave_empty():
    proofs = of("ONNX Runtime (Python)", "1.31.1", control="affinity") | of("libgomp", "12.2.0")
    first, second = supported.table(proofs).split("\n\n")
    assert first.splitlines()[0] == "| runtime | versions tested | affinity |"
    assert second.splitlines()[0] == "| runtime | versions tested | counts |"


def test_kubernetes_has_a_table_of_one_row():
    proofs = of("Kubernetes", "1.34.4", "1.36.3", control="helm install") | of(
        "Kubernetes", "1.36.3", control="uninstall"
    )
    found = supported.tables(proofs | of("libgomp", "12.2.0"))
    assert found["kubernetes"].splitlines() == [
        "| Kubernetes | helm install | uninstall |",
        "| --- | --- | --- |",
        "| 1.34.4, 1.36.3 | yes | from 1.36.3 |",
    ]
    assert "Kubernetes" not in found["runtimes"]


KNOWN = of("PyTorch", "1.13.1", "2.6.0")
MORE = KNOWN | of("PyTorch", "2.6.0", control="spinning")


@pytest.mark.parametrize(
    ("proven", "known", "status"),
    [
        (KNOWN, KNOWN, 0),
        (MORE, KNOWN, 1),
        # A run may try a part, and another machine has other versions.
        (KNOWN, MORE, 0),
        (of("PyTorch", "1.13.1", "2.7.0"), KNOWN, 0),
    ],
)
def test_the_tables_are_out_of_date_when_they_lack_what_was_proven_of_a_version_that_they_have(proven, known, status):
    assert supported.check(proven, known) == status


def test_what_was_not_tried_stays_and_what_was_tried_and_not_proven_goes():
    tried = of("PyTorch", "2.6.0")
    assert supported.merged(MORE, tried) == KNOWN
