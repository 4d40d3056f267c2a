"""What an agent tells of its node: as JSON and back."""

import json

import pytest
from hypothesis import given
from support import reports

from raddle_operator.objects import nodereport
from raddle_operator.objects.reading import SpecError

POOL = {"level": "Kubelet", "containers": [{"processes": [{"pools": [{"lastCpus": {"a": 1}}]}]}]}


@given(reports.reports)
def test_a_report_is_the_same_after_its_way_through_json(report):
    assert nodereport.from_document(json.loads(json.dumps(nodereport.to_document(report)))) == report


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"level": "All"}, "level"),
        ({"level": "Kubelet", "windowS": -1}, "windowS"),
        ({"level": "Kubelet", "containers": {}}, "containers"),
        ({"level": "Kubelet", "containers": [{"pod": 1}]}, "containers[0].pod"),
        ({"level": "Kubelet", "containers": [{"quotaCpus": "2"}]}, "containers[0].quotaCpus"),
        (POOL, "containers[0].processes[0].pools[0].lastCpus"),
        ({"level": "Kubelet", "containers": [{"findings": [{"cause": "Bad"}]}]}, "containers[0].findings[0].cause"),
    ],
)
def test_what_is_no_report_is_refused_with_the_path_of_its_field(document, path):
    with pytest.raises(SpecError) as refused:
        nodereport.from_document(document)
    assert refused.value.path == path
