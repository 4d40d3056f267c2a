"""InferenceTuning's CRD and its reader say the same; tests/integration/test_crds.py asks an API server too."""

from __future__ import annotations

import jsonschema
import pytest
from support.tunings import ACCEPTED, IMAGE, REFUSED, tuning

from raddle_operator.cli import schema
from raddle_operator.objects import tuning as tunings
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.tuning import Server, Workload, tuning_from_object

STATUS = schema.schema("InferenceTuning")["properties"]["status"]["properties"]


@pytest.mark.parametrize("case", ACCEPTED)
def test_the_schema_and_the_reader_take(case):
    given = tuning(**ACCEPTED[case])
    jsonschema.validate(given, schema.schema("InferenceTuning"))
    tuning_from_object(given)


@pytest.mark.parametrize("case", REFUSED)
def test_the_reader_names_the_field_of(case):
    field, spec = REFUSED[case]
    with pytest.raises(SpecError) as refused:
        tuning_from_object(tuning(**spec))
    assert refused.value.path.startswith(field)


def test_a_tuning_that_says_no_more_than_it_must_is_filled_in():
    found = tuning_from_object(tuning(namespace="shop"))
    assert (found.namespace, found.name, found.image, found.model, found.runner) == ("shop", "ranker", "", "", "")
    assert found.workload == Workload(kind="Deployment", name="ranker", container="")
    assert found.server == Server(
        command=(),
        url="http://localhost:8080/v2/models/ranker/infer",
        content_type="application/json",
        body='{"inputs": []}',
        config_map="",
        key="",
    )
    assert (found.objective, found.rate, found.p99_ms) == ("Latency", 50, 20)
    assert (found.nodes_per_class, found.minutes, found.trials, found.parallelism) == (2, 30, None, 1)
    assert found.nodes.matches({}), "every node"
    assert (found.cpus, found.space) == ("", ())


def test_a_model_alone_runs_in_python_unless_it_is_told():
    assert tuning_from_object(tuning(server=None, model="/m.onnx")).runner == "Python"
    assert tuning_from_object(tuning(server=None, model="/m.onnx", runner="C")).runner == "C"


def test_an_image_is_measured_under_the_limit_that_is_named():
    found = tuning_from_object(tuning(**IMAGE))
    assert (found.workload, found.image, found.cpus) == (None, "registry.example/ranker:1", "4")


def test_status_has_room_for_every_class():
    assert STATUS["classes"]["maxItems"] == tunings.MAX_CLASSES
    most_nodes = STATUS["classes"]["items"]["properties"]["nodes"]["maxItems"]
    outcome = STATUS["classes"]["items"]["properties"]["nodes"]["items"]["properties"]["outcome"]["maxLength"]
    # etcd takes 1.5 MiB of an object.
    assert tunings.MAX_CLASSES * most_nodes * outcome < 1024 * 1024
