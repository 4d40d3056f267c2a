"""The runners of a model in the workload's container of a tuning's pod, by the runtime that the container has."""

import sys

import pytest
from support import tiny_models, tuning_pods

from raddle.machine import sysfs
from raddle_operator.local.container import Container
from raddle_operator.results.candidate import Candidate
from raddle_tuner.analysis import subject as subjects
from raddle_tuner.trials import models
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.pod import Pod
from runtimes import libonnxruntime, nodejs

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]
NOTHING = Container(cpus=None, variables={}, mounts=(), notes=())


def image(language):
    """The working directory and the variables of a container that has the runtime where an image has it."""
    if language == "node":
        nodejs.node()
        return nodejs.package(f"onnxruntime-node@{nodejs.NEWEST}").parent, {}
    if language == "c":
        return None, {"LD_LIBRARY_PATH": str(libonnxruntime.release(libonnxruntime.WHEEL_VERSION))}
    return None, {}


@pytest.mark.parametrize("language", models.RUNNERS)
def test_a_model_runs_by_the_runtime_of_its_container(language):
    cwd, variables = image(language)
    with (
        tuning_pods.folder() as theirs,
        tuning_pods.folder() as shared,
        Pod(shared) as there,
        tuning_pods.container(shared, variables=variables, cwd=cwd),
    ):
        there.await_ready()
        (shared / "inputs").mkdir()
        own = sys.executable if language == "python" else ""
        runner = models.PodRunner.written(language, shared, own)
        model = subjects.model(tiny_models.write(theirs), runner, shared / "inputs")
        base = Base(spec={}, cpus=None, machine=sysfs.read_machine("/"), applied=lambda _: NOTHING, place=there.place)
        with Measuring(start=model.start(base, print), say=print, kept=1) as measuring:
            said = measuring.program(Candidate()).said
    assert said["runtime"] == "onnxruntime"
    assert said["version"]
