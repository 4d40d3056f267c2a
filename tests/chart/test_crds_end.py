"""crds.keep=false on a real API server: uninstalling deletes the CRDs, which it otherwise never does."""

import pytest

from cluster import Cluster
from generate import chart

pytestmark = pytest.mark.cluster


def test_crds_go_with_the_release_only_where_that_was_asked_for(kubernetes):
    with Cluster(scheduler=False, controller_manager=False, name="chart-crds", version=kubernetes) as cluster:
        chart_of = (str(chart.CHART), "--namespace", chart.NAMESPACE)
        cluster.helm("install", "raddle", *chart_of, "--create-namespace")
        cluster.helm("upgrade", "raddle", *chart_of, "--reuse-values", "--set", "crds.keep=false")
        cluster.helm("uninstall", "raddle", "--namespace", chart.NAMESPACE)
        # An API server on a busy machine may take minutes for the rest of it.
        format_ = "jsonpath={range .items[*]}{.metadata.name}={.metadata.deletionTimestamp}{'\\n'}{end}"
        left = cluster.kubectl("get", "crd", "-o", format_).stdout.split()
        assert [line for line in left if line.endswith("=")] == []
