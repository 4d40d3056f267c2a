"""A real HPA and VPA's real recommender on a real node, without Raddle and with it (`make e2e ARGS="-m autoscaling"`).

The same pod gets the same requests in both. The figures are printed; none of them is judged, but for the threads.
"""

import pytest
from support import real_pods as pods

import report
from cluster.objects import pod
from e2e import autoscalers, experiment, figures

pytestmark = [pytest.mark.autoscaling, pytest.mark.timeout(3600)]

DOCUMENT = report.ROOT / "docs" / "explanation" / "autoscalers.md"


@pytest.fixture(scope="module")
def site(host, progress):
    with autoscalers.running(host.cluster, progress):
        yield host


@pytest.fixture
def both(site):
    """What `measure` finds in a namespace without Raddle, and then in one with it: on one node they would share CPUs."""

    def measured(measure):
        with pods.without_raddle(site, measure.__name__) as space:
            stock = measure(space)
        with pods.governed(site, measure.__name__) as space:
            template = experiment.deployment("serve", 100, 200)["spec"]["template"]
            pods.wait_for_shim(space, {**pod(), "spec": template["spec"]})
            return stock, measure(space)

    return measured


@pytest.fixture
def written(request, record_property):
    """written(section, table): shown, and with --write written into the page on autoscalers."""
    # Now: the checkout may go on while it runs.
    where = report.machine()

    def write(section, table):
        record_property(f"e2e {section}", "\n\n" + table)
        if request.config.getoption("--write"):
            line = f'By `make e2e ARGS="-m autoscaling -k {section} --write"` on {where}:'
            report.write_section(section, f"{line}\n\n{table}", DOCUMENT)

    return write


def test_an_hpa_on_cpu_sees_less_to_scale_out_for(both, written):
    stock, raddle = both(experiment.horizontal)
    written("hpa", figures.horizontal(stock, raddle))
    assert (stock.threads, raddle.threads) == (2, 1)


def test_vpas_recommender_asks_for_less(both, written):
    stock, raddle = both(experiment.vertical)
    written("vpa", figures.vertical({"without Raddle": stock, "with Raddle": raddle}))
    assert ({one.threads for one in stock}, {one.threads for one in raddle}) == ({2}, {1})
