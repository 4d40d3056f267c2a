"""What a guest tells against the specification, without a guest."""

import pytest

from lab import plans, real, table, verdict
from lab.__main__ import main
from lab.scenarios import SCENARIOS, alike, on
from raddle import env
from raddle.cpus import cpuset
from vm import model, shapes

PAGES = model.WEIGHTS_MIB * 256


def scenario(name):
    return next(one for one in SCENARIOS if one.name == name)


@pytest.fixture(scope="module")
def bound():
    one = scenario("one-node")
    return plans.bind(plans.pod(one.resources, real.COMMANDS[one.program]), plans.machine(one.shape))


def look(**changes):
    """A session of scenario one-node that is as it should be."""
    kernel = {"cpuset": "8-15", "quota_cpus": None}
    shown = {"budget": {"cpus": "8-15"}, "effective": {"intraOp": 4}}
    return {
        "threads": 4,
        "caller": "8-15",
        "workers": ["8-15"] * 3,
        "memory": {"1": PAGES},
        "spinning": 3,
        "kernel": kernel,
        "raddle": {**kernel, "show": shown, "marks": ["raddle: onnxruntime 1.31.1: intra_op=4, spinning default"]},
        **changes,
    }


def result(side, *looks, **changes):
    return {
        "id": f"one-node-{side}",
        "looks": list(looks),
        "code": 0,
        "stderr": "",
        "affinity_errors": 0,
        "throttled_periods": 0,
        **changes,
    }


def judged(bound, raddle, stock=None):
    given = [raddle, stock or result("stock", look(threads=16, spinning=15, raddle=None))]
    (only,) = verdict.judge(scenario("one-node"), bound, given)
    return only


def test_the_webhooks_decision_for_a_node_is_what_the_container_starts_with(bound):
    assert bound.planned()["intra_op"] == 4
    assert bound.planned()["exclusive_cpus"] == 8
    assert env.ORT_INTRA not in bound.environ
    assert bound.environ["LD_PRELOAD"] == "/opt/raddle/libraddle.so"


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_the_planner_decides_each_scenario_as_the_specification_says(one):
    node = plans.machine(one.shape, one.reserved)
    container = plans.bind(plans.pod(one.resources, real.COMMANDS[one.program]), node, one.policy)
    planned = container.planned()["intra_op"]
    for limits, expected in one.sessions:
        within = container.within(limits.cpuset, limits.quota_cpus)
        assert min(planned, within.intra_op) == expected.threads


def test_a_session_that_is_as_expected_is_ok(bound):
    assert judged(bound, result("raddle", look())).wrong == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"threads": 8}, "8 threads, expected 4"),
        ({"workers": ["8-15", "0-7", "8-15"]}, "workers on 8-15 0-7 8-15, expected 8-15 8-15 8-15"),
        ({"caller": "8-9"}, "the caller is tied to 8-9"),
        ({"memory": {"0": PAGES, "1": PAGES}}, f"{PAGES} of {2 * PAGES} pages on NUMA nodes (1,)"),
        ({"memory": {"1": 10}}, "10 pages are less than the model's weights"),
        ({"kernel": {"cpuset": "0-15", "quota_cpus": None}}, "the guest's cgroup is not as it was asked for"),
        ({"raddle": None}, "Raddle is not in the process"),
        ({"raddle": {**look()["raddle"], "quota_cpus": 2}}, "Raddle reads quota_cpus 2, the kernel says None"),
        ({"raddle": {**look()["raddle"], "marks": []}}, "the shim left no mark"),
        ({"raddle": {**look()["raddle"], "show": "no plan"}}, "`python -m raddle` failed: no plan"),
        ({"raddle": {**look()["raddle"], "marks": ["spinning 50 us"]}}, "'spinning 50 us'], expected spinning always"),
        ({"spinning": 0}, "0 workers burn CPU time half a second after the answer, expected spinning always"),
    ],
)
def test_what_is_not_as_expected_is_said(bound, changes, says):
    assert any(says in problem for problem in judged(bound, result("raddle", look(**changes))).wrong)


@pytest.mark.parametrize(("spinning", "right"), [("spinning default", True), ("spinning 200 us", False)])
def test_a_native_program_is_judged_by_the_librarys_line(spinning, right):
    one = scenario("native-one-node")
    container = plans.bind(plans.pod(one.resources, real.COMMANDS[one.program]), plans.machine(one.shape), one.policy)
    seen = result(
        "raddle", look(spinning=None, raddle=None), stderr=f"raddle: onnxruntime 1.31.1: intra_op=4, {spinning}"
    )
    stock = result("stock", look(threads=16, spinning=None))
    given = [{**seen, "id": f"{one.name}-raddle"}, {**stock, "id": f"{one.name}-stock"}]
    (only,) = verdict.judge(one, container, given)
    assert (only.wrong == ()) is right


def test_lines_of_failed_affinity_are_raddles_fault_but_only_shown_of_stock(bound):
    stock = result("stock", look(threads=16), affinity_errors=12)
    assert judged(bound, result("raddle", look()), stock).wrong == ()
    assert judged(bound, result("raddle", look(), affinity_errors=1)).wrong == (
        "1 lines 'pthread_setaffinity_np failed'",
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (result("raddle", code=1, stderr="Killed"), "raddle: ended with 1: Killed"),
        ({"id": "one-node-raddle", "failed": "OSError()"}, "raddle: OSError()"),
        ({"id": "another"}, "raddle: the guest said nothing of it"),
    ],
)
def test_a_container_that_did_not_come_to_its_end_is_no_success(bound, given, says):
    wrong = judged(bound, given).wrong
    assert says in wrong
    assert "Raddle's session did not come" in wrong


def test_workers_places_are_told_in_few_characters():
    assert verdict.formatted(["4-7", "8-11", "8-11"]) == "4-7 8-11 x2"
    assert verdict.formatted([]) == "-"


def test_a_row_shows_plan_raddle_and_stock_side_by_side(bound):
    one = judged(bound, result("raddle", look(memory={"1": 3 * PAGES, "2": PAGES})))
    assert one.wrong[0].startswith(f"{3 * PAGES} of {4 * PAGES} pages on NUMA nodes (1,)")
    seen = table.table([table.row(one)]).splitlines()[1].split()
    assert seen == [
        "2s3n-8c16t-memory",
        "one-node",
        "8-15",
        "-",
        "4",
        "4",
        "8-15",
        "x3",
        "3",
        "always",
        "1:75%",
        "2:25%",
        "16",
        "0",
        "15",
        "WRONG",
    ]


def test_shapes_are_listed(capsys):
    assert main(["shapes"]) == 0
    assert "2s3n-8c16t-memory" in capsys.readouterr().out


def test_scenarios_have_names_of_their_own_and_cpus_that_their_machine_has():
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    for scenario in SCENARIOS:
        shape = shapes.get(scenario.shape)
        for limits, expected in scenario.sessions:
            cpus = set(cpuset.ids(cpuset.parse_list(limits.cpuset)))
            assert cpus <= set(range(shape.cpus)) - set(shape.offline), scenario.name
            assert len(expected.workers) == expected.threads - 1, scenario.name
            assert all(set(cpuset.ids(cpuset.parse_list(one))) <= cpus for one in expected.workers), scenario.name


def test_containers_with_the_same_limits_are_alike_without_raddle():
    per_core = next(scenario for scenario in SCENARIOS if scenario.name == "per-core")
    assert alike(per_core) == "one-node"
    assert {alike(scenario) for scenario in on(per_core.shape)} < {scenario.name for scenario in on(per_core.shape)}
