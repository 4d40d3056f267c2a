"""Reports of agents, as the types let them be."""

from __future__ import annotations

from hypothesis import strategies as st

from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport, Pool, Process, Session

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
    run_seconds_total=st.none() | numbers,
)
processes = st.builds(
    Process,
    pid=counts,
    command=names,
    threads=counts,
    runtimes=st.none() | st.lists(names, max_size=2).map(tuple),
    pools=st.lists(pools, max_size=2).map(tuple),
    sessions=st.none() | st.lists(sessions, max_size=2).map(tuple),
    listened=st.booleans(),
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
    process_count=st.none() | counts,
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
