"""Real ONNX Runtime, started with what a kubelet would give a pod's container: its variables and the shim's files.

The node is this very machine, so the plan and the process talk of the same CPUs. Threads are counted by the kernel.
"""

from __future__ import annotations

import json
import os
import platform

import pytest
from support.nodes import unregister
from support.runtimes import native_caller, native_lab, node_lab, shim_lab

from cluster import kubelet_env
from cluster.objects import container, env_of, plan_of, pod, policy, threads
from cluster.waiting import wait
from raddle import delivery, env
from runtimes import libonnxruntime, nodejs, pythons

pytestmark = pytest.mark.runtime

CPUS = sorted(os.sched_getaffinity(0))
if len(CPUS) < 2:
    pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)

HERE = "here"
# uname's name -> Kubernetes'.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ON_THIS = {"node": HERE, "kubernetes.io/arch": ARCHITECTURES[platform.machine()]}
# One that reads the count from the environment too, and the last one that only the shim can tell.
RELEASES = ("ort-1.31.1", "ort-1.28.0")
# More threads than any stock count for this machine, and more than its CPUs: only the policy can be the reason.
MORE = len(CPUS) + 2


@pytest.fixture(scope="module")
def here(cluster, raddle):
    """The machine that the tests run on, as a node."""
    handle = raddle.register_machine(HERE, "/", labels={"node": HERE})
    yield handle
    unregister(cluster, handle)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return shim_lab.write_model(tmp_path_factory.mktemp("model") / "chain.onnx")


@pytest.fixture
def started(shimmed, here, tmp_path):
    """started(container, **spec of the policy): a bound pod and the environment that its container starts with."""

    def start(one, name="app", **spec):
        shimmed.apply(policy(**spec))
        wait(lambda: shimmed.knows(HERE))
        shimmed.create(pod(one, name=name, nodeSelector=ON_THIS))
        bound = shimmed.bound(name)
        assert plan_of(bound).node == HERE
        return bound, kubelet_env.environment(shimmed.client, bound, "serve", tmp_path)

    return start


def in_an_image_with(entries, **resources):
    """A container whose pod spec sets variables, as one does that runs from a virtual environment."""
    return container(
        env=[{"name": name, "value": value} for name, value in entries.items()], request="10m", **resources
    )


def venv(release):
    version, package = pythons.RELEASES[release]
    return pythons.venv(release, version, [package])


@pytest.mark.parametrize(
    ("cpu", "spec", "planned"),
    [
        ("500m", {}, 1),
        ("2", {}, 2),
        ("2", {"threads": {"minIntraOp": MORE}}, MORE),
        ("2", {"threads": {"maxIntraOp": 1}}, 1),
    ],
    ids=["half a CPU", "two CPUs", "at least more than there are", "at most one"],
)
@pytest.mark.parametrize("release", RELEASES)
def test_the_pool_has_exactly_the_planned_threads(started, model, release, cpu, spec, planned):
    bound, environment = started(in_an_image_with({"PYTHONPATH": "/app"}, cpu=cpu), **spec)
    assert threads(bound) == planned
    # The application's own options object, then default options.
    found = shim_lab.probe(venv(release), model, [{}, None], env=environment)
    # The thread that calls is one of them.
    assert [session["pool"] for session in found["sessions"]] == [planned - 1] * 2
    assert [record["effective"]["intraOp"] for record in found["records"]] == [planned] * 2
    assert found["stderr"].startswith(f"raddle: onnxruntime {release.split('-')[1]}: intra_op={planned}")
    assert found["stderr"].count("\n") == 1


@pytest.mark.parametrize("version", [node_lab.BEFORE_EXTRA, nodejs.NEWEST])
def test_node_has_the_pods_threads_and_keeps_its_own_options(started, version):
    own = [{"name": "NODE_OPTIONS", "value": "--max-old-space-size=256"}]
    one = container(cpu="2", request="10m", command=["node", "app.cjs"], env=own)
    _, environment = started(one, threads={"minIntraOp": MORE})
    assert environment["NODE_OPTIONS"] == own[0]["value"]
    seen = node_lab.run(node_lab.application(version) / "app.cjs", {}, env=environment, cpus=CPUS)
    assert seen.threads == [MORE - 1]
    assert [line.partition(":")[2].split(",")[0] for line in seen.lines] == [f" onnxruntime {version}: intra_op={MORE}"]


def test_a_native_program_has_the_pods_threads(started):
    if platform.machine() not in delivery.architectures():
        pytest.skip("no native shim was built: make native")
    _, environment = started(container(cpu="2", request="10m"), threads={"minIntraOp": MORE})
    with native_caller.Caller(native_lab.program("c", libonnxruntime.MAVEN_VERSIONS[1]), environment) as caller:
        caller.do("env")
        assert len(caller.session()) == MORE - 1


def test_an_image_that_sets_a_path_of_its_own_has_the_plan_as_well(started, model):
    """The pod spec says nothing of PYTHONPATH and the image sets it, which a webhook can't see."""
    packages = next((venv("ort-1.28.0").parents[1] / "lib").glob("python3*/site-packages"))
    bound, environment = started(container(cpu="2", request="10m"), threads={"minIntraOp": MORE})
    assert "PYTHONPATH" not in env_of(bound)
    found = shim_lab.probe(pythons.interpreter("3.11"), model, [None], env={"PYTHONPATH": str(packages), **environment})
    assert found["sessions"][0]["pool"] == MORE - 1


REPORT = """
import json, os, sys
record = sys.modules.get("raddle.report.record")
counts = [made["effective"]["intraOp"] for made in record.sessions] if record else []
print(json.dumps([len(os.listdir("/proc/self/task")), counts]))
"""


@pytest.mark.parametrize(
    ("program", "sessions"), [(shim_lab.MAGIKA, 1), (shim_lab.RAPIDOCR, 3)], ids=["magika", "rapidocr"]
)
def test_unmodified_packages_have_the_pods_threads_in_each_session_that_they_make(started, program, sessions):
    executable = pythons.venv("third-party", "3.11", *shim_lab.THIRD_PARTY)
    # OpenBLAS and OpenCV have threads of their own; one each makes the difference ONNX Runtime's alone.
    one = in_an_image_with({"PYTHONPATH": "/app", env.OMP: "1", "OPENCV_FOR_THREADS_NUM": "1"}, cpu="2")

    def run(environment):
        done = shim_lab.python(executable, "-c", program + REPORT, env=environment)
        return *json.loads(done.stdout.splitlines()[-1]), done.stderr

    _, environment = started(one, threads={"minIntraOp": MORE})
    tasks, counts, said = run(environment)
    assert counts == [MORE] * sessions
    assert said.count("raddle:") == 1
    _, environment = started(one, name="without-pools", threads={"maxIntraOp": 1})
    tasks_without_pools, counts, _ = run(environment)
    assert counts == [1] * sessions
    assert tasks - tasks_without_pools == (MORE - 1) * sessions
    _, counts, said = run({env.OMP: "1"})
    assert (counts, "raddle:" in said) == ([], False), "the control has no Raddle in it"
