"""InferenceTuning's CRD and its reader say the same; tests/integration/test_crds.py asks an API server too."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from support.machines import of_size
from support.tunings import ACCEPTED, IMAGE, REFUSED, SERVED_IMAGE, of_class, summary, tuning, with_status

from raddle_operator.cli import schema
from raddle_operator.objects import tuning as tunings
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.tuning import Server, Workload, results_from_object, tuning_from_object
from raddle_operator.results.verdict import Verdict

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


OUTCOME = summary(of_size(32))


def results(**changes):
    """What is read of a tuning with one class, whose status has these changes."""
    given = with_status({**of_class(OUTCOME), **changes})
    jsonschema.validate(given, schema.schema("InferenceTuning"))
    return results_from_object(given).classes


def test_a_class_has_the_result_of_the_node_that_decides_for_it():
    (read,) = results()
    assert (read.verdict, read.summary, read.image) == (Verdict.BETTER, OUTCOME, SERVED_IMAGE)


@pytest.mark.parametrize(
    "changes",
    [
        {"decidedBy": "n2"},
        {"decidedBy": "gone"},
        {"nodes": [{"name": "n1", "state": "Measured", "outcome": "no JSON"}]},
        {"nodes": [{"name": "n1", "state": "Measured", "outcome": '{"version": 1, "error": "out of memory"}'}]},
    ],
)
def test_a_class_without_an_outcome_has_no_result(changes):
    assert results(**changes) == ()
    assert results_from_object(with_status()).classes == ()
    assert results_from_object(tuning()).classes == ()


def test_the_how_to_shows_a_tuning_that_is_one():
    page = (Path(__file__).parents[2] / "docs/how-to/tune-in-a-cluster.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    given = yaml.safe_load(text)
    jsonschema.validate(given, schema.schema("InferenceTuning"))
    assert tuning_from_object(given).server is not None


def test_status_has_room_for_every_class():
    assert STATUS["classes"]["maxItems"] == tunings.MAX_CLASSES
    most_nodes = STATUS["classes"]["items"]["properties"]["nodes"]["maxItems"]
    outcome = STATUS["classes"]["items"]["properties"]["nodes"]["items"]["properties"]["outcome"]["maxLength"]
    # etcd takes 1.5 MiB of an object.
    assert tunings.MAX_CLASSES * most_nodes * outcome < 1024 * 1024
