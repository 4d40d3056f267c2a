"""Many pods as few lines of `raddle explain`, and what runs in one pod."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support import nodereports

from raddle_operator.cli import groups, running
from raddle_operator.cli.groups import Answer, Pod
from raddle_operator.cli.reports import Reports

PLANNED = Answer(namespace="models", container="serve", planned=2, because="limit 2 CPUs")
NOTHING = Answer(namespace="models", because="NamespaceNotEnabled label it")


def of(name, *answers, node="n1"):
    return Pod("models", name, f"uid-{name}", node), list(answers)


def printed(show, *arguments, **more):
    text = StringIO()
    show(Console(file=text, width=150), *arguments, **more)
    return text.getvalue()


N1 = nodereports.report("n1", nodereports.sixteen("a"), nodereports.sixteen("b"), nodereports.container("c"))
REPORTS = Reports(by_node={"n1": N1, "n2": nodereports.report("n2", nodereports.container("d"))})
SAID = [of("c", PLANNED), of("x", NOTHING), of("y", NOTHING), of("a", PLANNED), of("b", PLANNED), of("d", PLANNED)]


def test_containers_of_which_the_same_can_be_said_are_one_line_and_the_worst_is_first(golden):
    found = groups.grouped(SAID, REPORTS)
    assert [(group.answer.effective, group.answer.notes, group.pods) for group in found] == [
        (16, ("CodeSetsIt",), ["models/a", "models/b"]),
        (None, (), ["models/x", "models/y"]),
        (2, (), ["models/c", "models/d"]),
    ]
    golden("explain/groups.txt", printed(groups.show, found, "", everywhere=True))


def test_without_agents_the_plans_are_grouped_and_it_is_said_why_nothing_more_is_known():
    reports = Reports(problem="no agent runs in raddle-system")
    found = groups.grouped(SAID, reports)
    assert [(group.answer.effective, len(group.pods)) for group in found] == [(None, 2), (None, 4)]
    text = printed(groups.show, found, reports.missing(["n1"]), everywhere=False)
    assert text.splitlines()[-1] == "what runs is not known for all pods: no agent runs in raddle-system"
    assert groups.document(found, reports.missing(["n1"]))["problem"] == "no agent runs in raddle-system"


def test_what_a_pod_itself_shows_counts_as_a_finding_too():
    stale = Answer(namespace="models", container="serve", planned=4, because="x", notes=("Stale",))
    (first, second) = groups.grouped([of("z", PLANNED), of("q", stale)], Reports())
    assert (first.answer, second.answer) == (stale, PLANNED)


@given(st.lists(st.tuples(st.sampled_from("abcdxyz"), st.sampled_from([PLANNED, NOTHING])), max_size=20))
def test_each_container_is_in_one_group(pods):
    found = groups.grouped([of(name, answer) for name, answer in pods], REPORTS)
    assert sorted(pod for group in found for pod in group.pods) == sorted(f"models/{name}" for name, _ in pods)


def test_a_pod_s_section_has_what_runs_and_each_finding_with_its_fix(golden):
    pod = {"metadata": {"name": "a", "uid": "uid-a"}, "spec": {"nodeName": "n1"}}
    golden("explain/running.txt", printed(running.show, REPORTS, pod))
    (container,) = running.document(REPORTS, pod)["containers"]
    assert container["findings"][0]["cause"] == "CodeSetsIt"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("n3", "\nwhat runs is not known: node n3: no agent observes containers there\n"),
        ("n2", "\nrunning, in the 10 s to 2026-11-24T00:00:00Z:\n  its node's agent reports no governed"),
        (None, ""),
    ],
)
def test_where_nothing_is_known_a_line_says_so(node, said):
    pod = {"metadata": {"name": "a", "uid": "uid-a"}, "spec": {"nodeName": node}}
    text = printed(running.show, REPORTS, pod)
    assert text.startswith(said)
    assert bool(text) == bool(said)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"used_cpus": None, "throttled_share": None, "waiting_share": None}, "2 threads, 2 planned"),
        ({"planned_threads": None}, "2 threads; 1.50 of 2 CPUs used; throttled in 0% of periods; threads waited"),
        ({"effective_threads": None, "limit_cpus": None}, "1.50 CPUs used; throttled"),
    ],
)
def test_a_sentence_has_what_the_agent_may_see(more, said):
    assert running.sentence(nodereports.container("a", **more)).startswith(said)
