"""`raddle top`: lines from reports and statuses, a node's cores with who ran on each."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import sys
import termios
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import StringIO

import pytest
from aiohttp import web
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support import nodereports
from support.api_server import answering
from support.machines import described_machines
from support.picture_browser import BROWSER, wrong_with

import machines
from raddle.cpus import cpuset
from raddle.machine import sysfs
from raddle_operator.cli import main, output
from raddle_operator.cli.picture import layout, svg, text
from raddle_operator.cli.reports import Reports
from raddle_operator.cli.top import nodepicture, rows
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause, Finding, Level

NS = {"s": "http://www.w3.org/2000/svg"}
SHARED = Finding(cause=Cause.SHARED_CORES, detail="shares core 8-9 with the other", fix="ask for whole CPUs")
WORST = nodereports.sixteen("resnet-0", processes_on={0: 4, 1: 4, 2: 4, 3: 4})
FIRST = nodereports.container("bert-0", findings=(SHARED,), processes=(nodereports.process({8: 1, 10: 1}),))
SECOND = nodereports.container(
    "bert-1", namespace="lab", findings=(SHARED,), processes=(nodereports.process({9: 1, 16: 1}, used_cpus=0.3),)
)
FINE = nodereports.container("fine-0", used_cpus=0.1, waiting_share=0.02)
REPORT = nodereports.report("worker-7", FINE, SECOND, FIRST, WORST)
REPORTS = Reports(
    by_node={
        "worker-7": REPORT,
        "worker-8": nodereports.report(
            "worker-8", replace(FINE, pod="fine-1", uid="uid-fine-1", limit_cpus=None), level=Level.CGROUPS
        ),
    },
    failed={"worker-9": "no answer within 10 s"},
)
MACHINE = sysfs.read_machine(str(machines.path("2s4n-16c32t")))


def printed(columns, lines, wide=(), width=250):
    table = output.table(*columns, *wide)
    for row in lines:
        table.add_row(*row.cells, *(row.more if wide else ()))
    text = StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


# --- tables ---------------------------------------------------------------------------------------------------------


def test_pods_are_lines_with_the_worst_first(golden):
    lines = rows.pods(rows.seen(REPORTS), "worst")
    text = printed(rows.PODS, lines) + "\n" + printed(rows.PODS, lines, rows.PODS_WIDE)
    golden("top/pods.txt", text)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_narrow_terminal_leaves_the_names_of_columns_and_all_numbers_whole(width):
    for columns, lines in (
        (rows.PODS, rows.pods(rows.seen(REPORTS), "worst")),
        (rows.NODES, rows.nodes(rows.summed(REPORTS, {"worker-7": 192}), "worst")),
    ):
        shown = printed(columns, lines, width=width)
        header, *rest = shown.splitlines()
        assert header.split() == [column.upper() for column in columns]
        assert max(map(len, (header, *rest))) <= width
        numbers = {cell for row in lines for cell in row.cells if any(map(str.isdigit, cell)) and "-" not in cell}
        assert {cell for cell in numbers if " " not in cell} <= set(shown.split())


@pytest.mark.parametrize(
    ("order", "pods"),
    [
        ("name", ["bert-1", "bert-0", "fine-0", "fine-1", "resnet-0"]),
        ("cpu", ["resnet-0", "bert-1", "bert-0", "fine-0", "fine-1"]),
        ("delay", ["resnet-0", "bert-1", "bert-0", "fine-0", "fine-1"]),
        ("threads", ["resnet-0", "bert-1", "bert-0", "fine-0", "fine-1"]),
        ("throttled", ["resnet-0", "bert-1", "bert-0", "fine-0", "fine-1"]),
    ],
)
def test_the_largest_are_first_and_names_decide_between_equals(order, pods):
    assert [row.cells[1] for row in rows.pods(rows.seen(REPORTS), order)] == pods


def test_only_the_chosen_pods_are_lines():
    assert [one.pod for _, one in rows.seen(REPORTS, {"uid-fine-0"})] == ["fine-0"]


def test_nodes_are_sums_of_their_containers_and_one_that_is_silent_says_why(golden):
    nodes = rows.summed(REPORTS, {"worker-7": 32, "worker-9": 8})
    golden("top/nodes.txt", printed(rows.NODES, rows.nodes(nodes, "worst")))
    worker = next(row.document for row in rows.nodes(nodes, "name") if row.document["node"] == "worker-7")
    assert (worker["containers"], worker["drifted"], worker["effectiveThreads"]) == (4, 3, 22)
    assert worker["causes"] == {"CodeSetsIt": 1, "SharedCores": 2}


def test_policies_are_lines_from_their_statuses(golden):
    status = {
        "matchedPods": 12,
        "injectedPods": 11,
        "threads": "1-4",
        "running": {
            "containers": 10,
            "drifted": 2,
            "worst": [{"cause": "CodeSetsIt", "namespace": "models", "pod": "resnet-0"}],
        },
    }
    found = [
        {"kind": "ClusterInferenceThreading", "metadata": {"name": "all"}},
        {"kind": "InferenceThreading", "metadata": {"name": "serving", "namespace": "models"}, "status": status},
    ]
    golden("top/policies.txt", printed(rows.POLICIES, rows.policies(found, "worst")))
    assert [row.cells[1] for row in rows.policies(found, "name")] == ["all", "serving"]


@pytest.mark.parametrize(
    "order",
    [
        *rows.POD_ORDERS,
        *(f"nodes {name}" for name in rows.NODE_ORDERS),
        *(f"policies {name}" for name in rows.POLICY_ORDERS),
    ],
)
def test_every_order_sorts_what_knows_nothing(order):
    kind, _, name = order.rpartition(" ")
    if kind == "nodes":
        assert rows.nodes([rows.Node(name="a", problem="x"), rows.Node(name="b")], name)
    elif kind == "policies":
        assert rows.policies([{"metadata": {"name": "a"}}], name)
    else:
        bare = nodereports.container(
            "a", used_cpus=None, throttled_share=None, waiting_share=None, effective_threads=None
        )
        assert rows.pods([("n", bare)], name)


# --- a node -----------------------------------------------------------------------------------------------------------


def test_a_node_s_cores_have_the_letters_of_who_ran_there(golden):
    marks = nodepicture.marks(REPORT, nodepicture.occupancy(REPORT, MACHINE))
    picture = layout.picture(MACHINE, marks)
    golden("top/node.txt", text.plain(text.draw(picture, 120)))
    golden("top/node.svg", svg.draw(picture))


def test_a_cpu_says_who_ran_there_how_much_and_with_whom_it_shares_its_core():
    found = nodepicture.occupancy(REPORT, MACHINE)
    names = {letter: one.pod for letter, one in found.containers.items()}
    assert names == {"A": "resnet-0", "B": "bert-1", "C": "bert-0", "D": "fine-0"}
    assert found.cpus[0] == nodepicture.CPU(threads={"A": 4}, use=0.5, shared=False)
    assert [found.cpus[cpu].shared for cpu in (8, 9, 10, 16)] == [True, True, False, False]
    document = json.loads(json.dumps(nodepicture.document(REPORT, found, MACHINE)))
    assert document["cpus"][9] == {"cpu": 9, "threads": {"B": 1}, "use": 0.15, "shared": True}
    assert [one["letter"] for one in document["containers"]] == list("ABCD")


def test_a_report_that_does_not_see_threads_says_so():
    report = nodereports.report("n", FINE, level=Level.CGROUPS)
    facts = dict(nodepicture.marks(report, nodepicture.occupancy(report, MACHINE)).facts)
    assert facts["who ran where"] == "is not observed at agent.watch Cgroups; set Processes"


last_cpus = st.dictionaries(st.integers(0, 80), st.integers(0, 5), max_size=6)
reports = st.lists(st.builds(lambda cpus: (cpus,), last_cpus), max_size=40).map(
    lambda all_cpus: nodereports.report(
        "n",
        *(
            nodereports.container(f"pod-{number}", processes=tuple(map(nodereports.process, cpus)))
            for number, cpus in enumerate(all_cpus)
        ),
    )
)


@given(described_machines(), reports)
def test_every_cpu_of_any_node_is_drawn_once_with_the_letters_of_those_that_ran_there_last(machine, report):
    found = nodepicture.occupancy(report, machine)
    picture = layout.picture(machine, nodepicture.marks(report, found))
    root = ET.fromstring(svg.draw(picture))
    drawn = {int(group.get("data-cpu")): group for group in root.iterfind(".//s:g[@data-cpu]", NS)}
    assert len(root.findall(".//s:g[@data-cpu]", NS)) == len(drawn)
    assert sorted(drawn) == cpuset.ids(machine.online | machine.offline)
    pods = {one.pod: letter for letter, one in found.containers.items()}
    assert len(set(pods.values())) == len(report.containers)
    expected: dict[int, dict[str, int]] = {}
    for one in report.containers:
        for cpu, count in one.processes[0].pools[0].last_cpus.items():
            if count and machine.online >> cpu & 1:
                expected.setdefault(cpu, {})[pods[one.pod]] = count
    assert {cpu: dict(one.threads) for cpu, one in found.cpus.items()} == expected
    for cpu, threads in expected.items():
        said = drawn[cpu].find("s:title", NS).text
        assert all(f"{letter} {count} thread" in said for letter, count in threads.items())
        sign = drawn[cpu].find("s:text", NS).find("s:tspan", NS).text
        assert sign.startswith("".join(sorted(threads)[:2]))
    assert all(0 <= one.use <= 1 for one in found.cpus.values())


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.slow
def test_a_browser_finds_nothing_wrong_with_the_pictures(tmp_path):
    marks = nodepicture.marks(REPORT, nodepicture.occupancy(REPORT, MACHINE))
    pictures = {
        "node": svg.draw(layout.picture(MACHINE, marks)),
    }
    assert wrong_with(pictures, tmp_path) == {name: [] for name in pictures}


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["top", "pods", "--watch", "-o", "json"], "--watch shows a table"),
        (["top", "node", "n1", "--watch"], "a node is drawn once"),
        (["top", "nodes", "-o", "svg"], "-o svg draws one node"),
        (["top", "services"], "No such command"),
    ],
)
def test_what_cannot_be_had_is_refused(arguments, wrong):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert wrong in done.stderr


@pytest.mark.parametrize("kind", ["pods", "nodes", "policies"])
def test_each_kind_explains_its_columns_and_exit_codes(kind):
    done = CliRunner().invoke(main, ["top", kind, "--help"])
    assert done.exit_code == 0
    assert "Exit codes: 0 success" in done.stdout
    assert ("THROTTLED   share" in done.stdout) == (kind != "policies")


async def test_watching_shows_a_table_until_ctrl_c_and_leaves_the_terminal_as_it_was(tmp_path):
    async def handler(request):
        if request.path.endswith("/proxy/v1/report"):
            return web.json_response(nodereport.to_document(REPORT))
        if request.path == "/api/v1/namespaces/raddle-system/pods":
            agent = {"metadata": {"name": "a"}, "spec": {"nodeName": "worker-7"}, "status": {"phase": "Running"}}
            return web.json_response({"items": [agent]})
        return web.json_response({}, status=404)

    async with answering(handler, tmp_path):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        command = [
            "-m",
            "raddle_operator",
            "top",
            "pods",
            "-A",
            "--watch",
            "--kubeconfig",
            str(tmp_path / "kubeconfig"),
        ]
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=theirs, stderr=theirs, env=environ
        )
        os.close(theirs)
        said = b""
        async with asyncio.timeout(60):
            while b"resnet-0" not in said:
                said += await asyncio.to_thread(os.read, ours, 65536)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        with contextlib.suppress(OSError):  # a terminal that nobody has open any more
            while more := os.read(ours, 65536):
                said += more
        os.close(ours)
    assert b"CodeSetsIt" in said
    assert b"Traceback" not in said
    assert said.count(b"\x1b[?25l") == said.count(b"\x1b[?25h") == 1
