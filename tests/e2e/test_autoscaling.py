"""What is read of autoscalers and of containers, the load, and the tables; the run itself needs a node."""

import http.server
import threading

import pytest

from cluster.waiting import wait
from e2e import autoscalers, experiment, figures, usage
from e2e.experiment import Horizontal, Round, Served
from e2e.offered import Answer, Offered, percentile_ms
from e2e.usage import Usage

SERVED = Served(seconds=30.0, requests=900, failed=2, p50_ms=2.04, p99_ms=91.5, cpu_m=199.6, throttled_percent=97.5)
IDLE = Served(seconds=30.0, requests=0, failed=0, p50_ms=None, p99_ms=None, cpu_m=0.0, throttled_percent=None)
READY = {"type": "Ready", "status": "True"}


def pod(*conditions, uid="7", **metadata):
    return {
        "metadata": {"uid": uid, **metadata},
        "status": {
            "qosClass": "Burstable",
            "conditions": list(conditions),
            "containerStatuses": [{"containerID": "containerd://abc"}],
        },
    }


# --- control groups


def test_a_container_is_found_below_its_pod_in_the_folder_of_its_class(tmp_path):
    # Version 1, where its files lie apart; what they say is read by raddle.process.totals.
    cpu, cpuacct = tmp_path / "cpu", tmp_path / "cpuacct"
    for root, file, text in (
        (cpu, "cpu.stat", "nr_periods 4\nnr_throttled 1\n"),
        (cpuacct, "cpuacct.usage", "1000000000\n"),
    ):
        group = root / "kubepods" / "burstable" / "pod7" / "abc"
        group.mkdir(parents=True)
        (group / file).write_text(text)
    assert usage.read(pod(), [tmp_path / "blkio", cpuacct, cpu]) == Usage(cpu_us=1_000_000, periods=4, throttled=1)


def test_a_container_that_is_gone_has_no_usage(tmp_path):
    assert usage.read(pod(), [tmp_path]) is None


def test_the_throttled_share_is_of_the_periods_between_two_readings():
    used = Usage(3000, 60, 30).since(Usage(1000, 40, 25))
    assert (used.cpu_us, used.throttled_percent) == (2000, 25.0)


def test_what_several_containers_used_is_added_up():
    assert usage.total([Usage(1, 2, 3), Usage(10, 20, 30)]) == Usage(11, 22, 33)
    assert usage.total([]) == Usage(0, 0, 0)


def test_without_a_quota_nothing_is_throttled():
    assert Usage(1, 0, 0).throttled_percent is None


# --- the load


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0)])
def test_percentiles_are_of_the_nearest_rank(percent, expected):
    answers = [Answer(0.0, number / 1000, ok=True) for number in range(1, 101)]
    assert percentile_ms(answers, percent) == pytest.approx(expected)


def test_no_requests_have_no_percentile():
    assert percentile_ms([], 99) is None


@pytest.fixture
def server():
    """The address of a server that answers at once."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever).start()
        yield listening.server_address
        listening.shutdown()


def test_requests_go_to_the_address_that_was_aimed_at(server):
    with Offered(20) as offered:
        offered.aim([server])
        wait(lambda: len(offered.answers()) >= 5)
    assert all(one.ok and one.seconds > 0 for one in offered.answers())


def test_a_request_that_nobody_answers_has_failed(server):
    with Offered(20) as offered:
        offered.aim([("127.0.0.1", 1), server])
        wait(lambda: {one.ok for one in offered.answers()} == {True, False})


def test_a_request_that_is_answered_after_the_moment_it_is_asked_for_is_counted_there(server):
    with Offered(20) as offered:
        load = experiment.Load(offered, list)
        offered.aim([server])
        wait(offered.answers)
        middle = load.mark()
        wait(lambda: offered.answers(since=middle.moment))
        end = load.mark()
    due = [one.due for one in offered.answers()]
    first, second = load.served(until=middle), load.served(middle, end)
    assert first.requests == sum(one < middle.moment for one in due) > 0
    assert second.requests == sum(middle.moment <= one < end.moment for one in due) > 0


# --- the autoscalers


def test_an_hpa_says_replicas_and_the_utilization_that_it_saw():
    current = {"resource": {"name": "cpu", "current": {"averageUtilization": 201}}}
    status = {"desiredReplicas": 3, "currentReplicas": 1, "currentMetrics": [current]}
    assert autoscalers.scaled({"status": status}) == (3, 1, 201)


@pytest.mark.parametrize(
    "status", [{}, {"currentMetrics": None}, {"currentMetrics": [{"type": "Resource", "resource": {}}]}]
)
def test_an_hpa_that_has_seen_nothing_has_no_utilization(status):
    assert autoscalers.scaled({"status": status}).utilization_percent is None


def test_a_vpa_recommends_for_its_first_container():
    one = {"containerName": "serve", "target": {"cpu": "237m"}}
    assert autoscalers.recommended_m({"status": {"recommendation": {"containerRecommendations": [one]}}}) == 237


@pytest.mark.parametrize("status", [{}, {"recommendation": {}}, {"recommendation": {"containerRecommendations": None}}])
def test_a_vpa_without_a_recommendation_has_none(status):
    assert autoscalers.recommended_m({"status": status}) is None


# --- the objects


def test_the_pod_says_nothing_of_threads():
    container = experiment.deployment("hpa", 100, 200)["spec"]["template"]["spec"]["containers"][0]
    assert "env" not in container
    assert container["resources"] == {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}


def test_only_pods_that_are_ready_and_stay_get_requests():
    leaving = pod(READY, deletionTimestamp="2026-11-21T20:00:00Z")
    starting = pod({"type": "Ready", "status": "False"})
    assert experiment.ready([leaving, starting, pod(), pod(READY)]) == [pod(READY)]


def test_server_and_model_fit_into_a_configmap():
    files = experiment.files()
    assert "serve_forever" in files["data"]["serve.py"]
    assert 100_000 < len(files["binaryData"]["model.onnx"]) < 1_000_000


# --- VPA's loop


def rounds(target_of_limit, allocatable_m=1000):
    """The requests and limits of the rounds, where VPA's target follows from the limit."""
    found = experiment.follow(
        lambda _, request_m, limit_m: Round(
            threads=2, request_m=request_m, limit_m=limit_m, target_m=target_of_limit(limit_m), served=SERVED
        ),
        allocatable_m,
    )
    return [(one.request_m, one.limit_m) for one in found]


def test_a_pod_that_uses_up_its_quota_grows_until_it_has_no_more_to_burn():
    assert rounds(lambda limit_m: min(limit_m, 370) * 23 // 20) == [(100, 200), (230, 460), (425, 850)]


def test_a_pod_that_uses_what_its_work_needs_stays_there():
    assert rounds(lambda _: 70) == [(100, 200), (70, 140)]


def test_the_loop_ends_where_the_target_does_not_fit_the_node():
    assert rounds(lambda limit_m: 2 * limit_m, allocatable_m=1000) == [(100, 200), (400, 800)]


def test_the_loop_ends_after_a_few_rounds_in_any_case():
    assert len(rounds(lambda limit_m: limit_m, allocatable_m=10**9)) == experiment.MOST_ROUNDS


# --- the tables


def test_the_hpa_table_has_a_column_a_variant():
    stock = Horizontal(threads=2, alone=SERVED, first_percent=201, last_percent=120, replicas=4, last=SERVED)
    raddle = Horizontal(threads=1, alone=IDLE, first_percent=None, last_percent=None, replicas=1, last=IDLE)
    rows = figures.horizontal(stock, raddle).splitlines()
    assert "| threads of the session | 2 | 1 |" in rows
    assert "| utilization that the HPA saw first | 201 % | - |" in rows
    assert "| replicas that it wants in the end, at most 4 | 4 | 1 |" in rows
    assert "| in the end: p99, ms | 91.5 | - |" in rows
    assert "| one replica: failed requests | 2 of 900 | 0 of 0 |" in rows


def test_the_vpa_table_has_a_row_a_round():
    rounds = [Round(threads=2, request_m=100, limit_m=200, target_m=237, served=SERVED)]
    text = figures.vertical({"without Raddle": rounds, "with Raddle": []})
    assert text.splitlines()[-1] == "| without Raddle | 1 | 2 | 100m | 200m | 200m | 237m | 2.0 | 91.5 | 2 | 98 % |"
