"""Programs in the workload's container of a tuning's pod: a real supervisor as process 1, in each shell, as another user.

No timing is asserted.
"""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import tiny_models, tuning_pods

from cluster import local_container
from raddle import delivery
from raddle.machine import sysfs
from raddle_operator.cli import offline
from raddle_operator.jobs import supervisor
from raddle_operator.local import quota
from raddle_operator.local.container import Container
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.results.candidate import Candidate
from raddle_tuner.analysis import subject as subjects
from raddle_tuner.search.blocks import Block, MeasurementRequest
from raddle_tuner.trials import models, words
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.pod import Pod, TrialError

BIN = Path(sys.executable).parent
needs_quota = pytest.mark.skipif(quota.available() is not None, reason=str(quota.available()))


def given(**variables):
    return Container(cpus=None, variables=variables, mounts=(), notes=())


def ask(candidate=Candidate(), rate=50.0):  # noqa: B008 (frozen)
    return MeasurementRequest(candidate=candidate, rate=rate, seconds=0.2, seed=1, phase="test")


@pytest.fixture
def shared():
    with tuning_pods.folder() as made:
        yield made


@pytest.fixture
def one(shared):
    """The tuner's side, with a container beside it."""
    with Pod(shared) as made, tuning_pods.container(shared):
        made.await_ready()
        yield made
    assert not list(shared.iterdir())


def test_shellcheck_has_nothing_to_say():
    script = "#!/bin/sh\n" + supervisor.SUPERVISOR
    done = subprocess.run([str(BIN / "shellcheck"), "-"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("shell", tuning_pods.SHELLS)
def test_in_each_shell_a_program_is_started_stopped_continued_counted_and_killed(shell, shared):
    with tuning_pods.container(shared, shell=shell, variables={"OWN": "its own"}) as first, Pod(shared) as one:
        one.await_ready()
        script = 'echo "$SAID $(id -u) $OWN"; (setsid sleep 1000 &); sleep 1001 & exec sleep 1002'
        with one.place(given(SAID="it's $(OWN)"), ["sh", "-c", words.escaped(script)], print) as (processes, _):
            processes.start()
            # The three, and the supervisor's process that awaits one of them.
            while not processes.output() or len(first.children(recursive=True)) < 4:
                processes.check()
            assert processes.output() == f"it's its own {tuning_pods.UID} its own\n"
            # A signal has come before it has had its effect.
            processes.pause()
            while states(first) != {psutil.STATUS_STOPPED}:
                processes.check()
            processes.resume()
            while psutil.STATUS_STOPPED in states(first):
                processes.check()
            if quota.available() is None:
                assert processes.usage().cpu_s > 0
        assert not first.children(recursive=True)
        assert first.is_running()
        first.terminate()
        first.wait(10)


def states(first):
    return {child.status() for child in first.children(recursive=True)}


@pytest.mark.parametrize("shell", tuning_pods.SHELLS)
def test_in_each_shell_a_program_that_ends_is_told_of(shell, shared):
    with Pod(shared) as one, tuning_pods.container(shared, shell=shell):
        one.await_ready()
        for script, said in (
            ("echo no such model >&2; exit 7", "the program ended with status 7: no such model"),
            ("kill -s SEGV $$$$", "the program ended by SIGSEGV"),
            # Of what a program may end with by itself as well.
            ("exit 255", "the program ended with status 255"),
            ("exit 165", "the program ended by signal 37"),
        ):
            with one.place(given(), ["sh", "-c", script], print) as (processes, _):
                processes.start()
                processes.wait()
                with pytest.raises(TrialError, match=said):
                    processes.check()


def test_a_program_that_is_not_there_is_told_of(one):
    with one.place(given(), ["/nowhere/python3"], print) as (processes, _):
        processes.start()
        assert processes.wait() == 127
        assert "/nowhere/python3" in processes.output()


def test_a_container_that_was_started_again_is_noticed(shared):
    with Pod(shared) as one:
        with tuning_pods.container(shared):
            one.await_ready()
            entered = one.place(given(), ["sleep", "1000"], print)
            processes, _ = entered.__enter__()
            processes.start()
            processes.check()
        with tuning_pods.container(shared):
            with pytest.raises(TrialError, match="restarted meanwhile, for example after exceeding its memory limit"):
                processes.pause()
            with pytest.raises(TrialError, match="restarted meanwhile"):
                processes.check()
            entered.__exit__(None, None, None)
            with one.place(given(), ["true"], print) as (processes, _):
                processes.start()
                assert processes.wait() == 0


def test_a_container_that_shares_its_processes_is_refused_before_anything_is_stopped(shared):
    if os.geteuid() != 0:
        pytest.skip("only root can give it a user whose signals reach nothing here")
    command = [*local_container.as_user(tuning_pods.UID), *supervisor.command(str(shared))]
    shares = pytest.raises(TrialError, match="shareProcessNamespace or hostPID")
    with Pod(shared) as one, subprocess.Popen(command), shares:
        one.await_ready()


def test_a_container_that_does_not_show_up_is_said(shared):
    with Pod(shared) as one, pytest.raises(TrialError, match=r"not answer within 0.1 s: does its image have /bin/sh\?"):
        one.await_ready(0.1)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", ""), ("two words", "two words"), ("$(A)/z", "x y/z"), ("$(NONE)", "$(NONE)"), ("$$(A) $$", "$(A) $"),
        ("'$(A)\"", "'x y\""), ("$(not.a.name)", "$(not.a.name)"), ("$A `id` $(A", "$A `id` $(A"),
        ("\\$(NONE)\\", "\\$(NONE)\\"), ("a\nb", "a\nb"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_pod_specs_text_is_read_in_a_shell_as_the_kubelet_reads_it(text, read, shell):
    command, env = [shell, "-c", f"printf %s {words.word(text)}"], {"A": "x y", "PATH": os.environ["PATH"]}
    assert subprocess.check_output(command, env=env, text=True) == read


def test_a_file_that_only_the_workload_may_read_is_copied(one, shared, tmp_path):
    with tuning_pods.folder() as theirs:
        secret = theirs / "the $(model).onnx"
        secret.write_text("weights")
        secret.chmod(0o600)
        os.chown(secret, tuning_pods.UID, tuning_pods.UID)
        one.copied(str(secret), shared / "copy")
        assert (shared / "copy").read_text() == "weights"
        (shared / "copy").unlink()


def test_the_cpus_of_the_container_are_known(shared):
    [first, *_] = sorted(os.sched_getaffinity(0))
    with Pod(shared) as one, tuning_pods.container(shared) as container:
        container.cpu_affinity([first])
        one.await_ready()
        assert one.cpus() == 1 << first


def test_a_model_that_is_not_there_is_said_with_what_the_container_says(one, shared):
    with pytest.raises(TrialError, match=r"/nowhere.onnx can't be read: cp: .*No such file"):
        one.copied("/nowhere.onnx", shared / "copy")
    (shared / "copy").unlink()


def test_files_that_the_container_has_are_named(one, shared):
    with tuning_pods.folder() as theirs:
        (theirs / "it's $HOME here").touch()
        there, not_there = str(theirs / "it's $HOME here"), str(theirs / "nothing")
        assert one.present([not_there, there, "/bin/sh"]) == [there, "/bin/sh"]


@pytest.fixture
def measured(one, shared):
    """measured(subject): a block of it in the container."""

    def measure(subject, rate=50.0):
        base = Base(spec={}, cpus=None, machine=None, applied=lambda spec: given(), place=one.place)
        with Measuring(start=subject.start(base, print), say=print, kept=1, warm_up_s=0.02) as measuring:
            blocks = [measuring.measure(ask(rate=rate)), measuring.measure(ask(Candidate.of({"threads.intraOp": 1})))]
        return blocks[0]

    yield measure
    for left in ("run_model.py", "inputs"):
        subprocess.run(["rm", "-rf", str(shared / left)], check=True)


@needs_quota
@pytest.mark.parametrize("io_binding", [False, True])
def test_a_real_model_runs_in_the_container(measured, shared, io_binding):
    with tuning_pods.folder() as theirs:
        model = tiny_models.write(theirs)
        runner = models.PodRunner.written("python", shared, own=sys.executable)
        (shared / "inputs").mkdir()
        subject = subjects.model(model, runner, shared / "inputs")
        block = measured(subject)
    assert isinstance(block, Block), block
    assert (len(block.latencies_ms), block.missed) == (10, 0)
    assert block.cpu_s is not None


def test_the_shim_that_the_container_has_is_loaded_with_a_candidates_plan_beside_its_own_variables(shared):
    container = {"name": "serve", "image": "serve", "resources": {"limits": {"cpu": "2"}}}
    container["env"] = [{"name": "PYTHONPATH", "value": "/theirs"}]
    policy = {**offline.default_policy().obj, "metadata": {"name": "default", "namespace": "models"}}
    everything = offline.for_everything(policy_from_object(policy))
    made = offline.of_container(container, everything, "here", sysfs.read_machine("/"))
    if delivery.PRELOAD_FILE not in made.mounts:
        pytest.skip("no native shim is built here")
    with tuning_pods.folder() as shim:
        delivery.write(str(shim))
        own = {"PYTHONPATH": "/theirs"}
        with Pod(shared) as one, tuning_pods.container(shared, shim=shim, variables=own):
            one.await_ready()
            model = tiny_models.write(shim)
            script = f"import onnxruntime, sys; onnxruntime.InferenceSession('{model}'); print(sys.path)"
            with one.place(made, [sys.executable, "-c", script], print) as (processes, _):
                processes.start()
                assert processes.wait() == 0
                assert "raddle: onnxruntime" in processes.output()
                assert "'/theirs'" in processes.output()


def test_a_runner_is_started_by_the_interpreter_of_the_workload(tmp_path):
    runner = models.PodRunner.written("python", tmp_path, own="/opt/venv/bin/python3.11")
    command = runner.command(Path("/models/$x.onnx"), Path("/in"), io_binding=True)
    assert command == ["/opt/venv/bin/python3.11", f"{tmp_path}/run_model.py", "/models/$$x.onnx", "/in", "io-binding"]
    shell = models.PodRunner.written("python", tmp_path, own="/serve.sh")
    assert shell.command(Path("/m"), Path("/in"))[0] == "python3"
