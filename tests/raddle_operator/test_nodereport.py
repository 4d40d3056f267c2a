"""What an agent tells of its node: as JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport, Pool, Process, Session
from raddle_operator.objects.reading import SpecError

names = st.text(min_size=1, max_size=8)
numbers = st.floats(min_value=0, max_value=1e6)
counts = st.integers(min_value=0, max_value=10_000)
cpus = st.dictionaries(st.integers(0, 511), counts, max_size=3)
pools = st.builds(
    Pool,
    name=names,
    threads=counts,
    ran=counts,
    used_cpus=numbers,
    delay_cpus=st.none() | numbers,
    migrations_hz=st.none() | numbers,
    involuntary_hz=st.none() | numbers,
    last_cpus=cpus,
)
sessions = st.builds(
    Session,
    runtime=names,
    threads=st.none() | counts,
    source=names,
    runs=st.none() | counts,
    run_seconds=st.dictionaries(st.sampled_from(["0.01", "+Inf"]), counts),
)
processes = st.builds(
    Process,
    pid=counts,
    command=names,
    threads=counts,
    runtimes=st.none() | st.lists(names, max_size=2).map(tuple),
    pools=st.lists(pools, max_size=2).map(tuple),
    sessions=st.none() | st.lists(sessions, max_size=2).map(tuple),
    memory_numa_mib=cpus,
)
findings = st.builds(Finding, cause=st.sampled_from(Cause), detail=names, fix=names)
containers = st.builds(
    Container,
    namespace=names,
    pod=names,
    uid=names,
    name=names,
    policy=names,
    quota_cpus=st.none() | numbers,
    cpuset=st.none() | names,
    throttled_share=st.none() | numbers,
    planned_threads=st.none() | counts,
    processes=st.lists(processes, max_size=2).map(tuple),
    findings=st.lists(findings, max_size=2).map(tuple),
)
reports = st.builds(
    NodeReport,
    node=names,
    level=st.sampled_from(Level),
    at=names,
    window_s=numbers,
    containers=st.lists(containers, max_size=2).map(tuple),
)


@given(reports)
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
        (
            {"level": "Kubelet", "containers": [{"processes": [{"pools": [{"lastCpus": {"a": 1}}]}]}]},
            "containers[0].processes[0].pools[0].lastCpus",
        ),
        ({"level": "Kubelet", "containers": [{"findings": [{"cause": "Bad"}]}]}, "containers[0].findings[0].cause"),
    ],
)
def test_what_is_no_report_is_refused_with_the_path_of_its_field(document, path):
    with pytest.raises(SpecError) as refused:
        nodereport.from_document(document)
    assert refused.value.path == path
