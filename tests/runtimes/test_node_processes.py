"""The Node.js shim in processes of every kind: clusters, worker threads, children, other hooks, other versions of Node.js."""

import json
import platform
import shutil
import subprocess
from pathlib import Path

import node_lab
import pytest
import shim_lab
from node_lab import BEFORE_EXTRA, NEWEST, VERSIONS, application, plan, preload, run

from raddle import delivery

pytestmark = pytest.mark.runtime

MODERN = "24.21.0"


# --- the budget is shared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("workers", [2, 3])
def test_a_cluster_divides_what_its_container_has(version, workers):
    """Runnable threads of all its processes are at most the workers, or the plan's."""
    seen = run(application(version) / "cluster.cjs", {}, text=plan(), workers=workers)
    assert sum(1 + threads for threads in seen.threads) <= max(workers, 2)
    assert len(seen.lines) == 1
    assert f"intra_op=1 (planned 2, cut to cpuset of 2, shared by {workers} workers)" in seen.lines[0]


def test_processes_like_it_that_never_load_a_runtime_are_no_workers(tmp_path):
    waiting = tmp_path / "waiting.cjs"
    waiting.write_text("require('fs').readSync(0, Buffer.alloc(1)); process.exit();")
    program = application(NEWEST) / "app.cjs"
    command = [node_lab.node(), program, json.dumps({**node_lab.chain(), "sessions": [{}]})]
    environ = shim_lab.environment({"NODE_OPTIONS": f"--require {waiting}"})
    helpers = [subprocess.Popen(command, env=environ, stdin=subprocess.PIPE) for _ in range(2)]
    try:
        seen = run(program, text=plan())
        assert seen.threads == [1]
        assert "intra_op=2," in seen.lines[0]
    finally:
        for helper in helpers:
            helper.communicate()


def test_workers_that_were_planned_are_no_surprise():
    seen = run(application(NEWEST) / "cluster.cjs", {}, text=plan(intra=1, workers=2, streams=2), workers=2)
    assert seen.threads == [0, 0]
    assert "intra_op=1, inter_op=1" in seen.lines[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_worker_threads_divide_what_their_process_has(version):
    seen = run(application(version) / "worker.cjs", {}, text=plan(), threads=2)
    assert seen.threads == [0, 0]
    assert len(seen.lines) == 1
    assert "intra_op=1 (planned 2, cut to cpuset of 2, shared by 2 workers)" in seen.lines[0]


def test_as_many_worker_threads_as_there_are_planned_sessions_are_no_surprise():
    seen = run(application(NEWEST) / "worker.cjs", {}, text=plan(intra=4, min=2, streams=2), threads=2)
    assert seen.threads == [1, 1]
    assert "intra_op=2 (planned 4, cut to cpuset of 2), inter_op=1" in seen.lines[0]


@pytest.mark.parametrize(
    ("beside", "threads"),
    [({}, 1), ({"loaded": True}, 0), ({"loaded": True, "ended": True}, 1)],
    ids=["a logger's", "another user of ONNX Runtime", "one that has ended"],
)
def test_only_living_worker_threads_that_use_onnx_runtime_share(beside, threads):
    assert run(application(NEWEST) / "aside.cjs", {}, text=plan(), **beside).threads == [threads]


# --- how it is reached ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [{"spawn": True}, {"execArgv": []}, {"execArgv": ["--no-warnings"]}], ids=str)
def test_children_are_reached_however_they_are_started(request_):
    seen = run(application(NEWEST) / "child.cjs", {}, text=plan(intra=3, min=3), **request_)
    assert seen.threads == [2]


def test_a_command_line_reaches_forked_children_too():
    loaded = ["--require", preload()]
    seen = run(application(NEWEST) / "child.cjs", {}, env={"RADDLE_PLAN": plan(intra=3, min=3)}, arguments=loaded)
    assert seen.threads == [2]


@pytest.mark.parametrize("worker", [{}, {"execArgv": []}, {"execArgv": ["--no-warnings"]}], ids=str)
def test_worker_threads_are_reached_whatever_their_arguments(worker):
    assert run(application(NEWEST) / "worker.cjs", {}, text=plan(intra=3, min=3), worker=worker).threads == [2]


def test_a_worker_thread_with_an_environment_of_its_own_is_as_it_was_without_us():
    """Node.js takes NODE_OPTIONS from that environment: the documentation says so."""
    seen = run(application(NEWEST) / "worker.cjs", {}, text=plan(intra=3, min=3), worker={"env": {}})
    stock = run(application(NEWEST) / "worker.cjs", {}, worker={"env": {}})
    assert (seen.threads, seen.lines) == (stock.threads, [])


@pytest.mark.parametrize(
    "flags", [["--frozen-intrinsics"], ["--preserve-symlinks"], ["--disable-proto=throw"], ["--enable-source-maps"]]
)
def test_flags_of_nodejs_change_nothing(flags):
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(intra=3, min=3), arguments=flags)
    assert seen.threads == [2]


@pytest.mark.parametrize("version", [BEFORE_EXTRA, NEWEST])
def test_a_bundle_that_renamed_the_addon_is_reached(tmp_path, version):
    folder = f"bin/napi-v*/linux/{node_lab.architecture()}"
    (binding,) = application(version).glob(f"node_modules/onnxruntime-node/{folder}/onnxruntime_binding.node")
    for file in binding.resolve().parent.iterdir():
        name = "a1b2c3.node" if file.name == binding.name else file.name
        shutil.copy(file, tmp_path / name)
    seen = run(application(version) / "bundled.cjs", {}, text=plan(intra=3, min=3), bundle=str(tmp_path))
    assert seen.threads[0] in {2, 3}  # with the environment's own thread in newer versions
    spinning = "default (planned never" if version == BEFORE_EXTRA else "off"
    assert f"onnxruntime (bundled): intra_op=3, inter_op=1, spinning {spinning}" in seen.lines[0]


# --- beside others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("ours", "theirs"), ("theirs", "ours")], ids=" then ".join)
@pytest.mark.parametrize("shape", ["app.cjs", "app.mjs", "worker.cjs"])
def test_other_hooks_work_before_and_after_ours(order, shape):
    folder = application(NEWEST)
    files = {"ours": preload(), "theirs": str(folder / "wrapping.cjs")}
    options = {"NODE_OPTIONS": " ".join(f"--require {files[name]}" for name in order)}
    seen = run(folder / shape, {}, text=plan(intra=3, min=3), env=options)
    assert seen.threads == [2]
    assert {"wrapped .node", "wrapped dlopen"} < set(seen.stderr.splitlines())


@pytest.mark.parametrize("order", [("ours", "theirs"), ("theirs", "ours")], ids=" then ".join)
def test_opentelemetry_instruments_the_same_module(order):
    folder = application(NEWEST, node_lab.OPENTELEMETRY)
    files = {"ours": preload(), "theirs": str(folder / "otel.cjs")}
    options = {"NODE_OPTIONS": " ".join(f"--require {files[name]}" for name in order)}
    seen = run(folder / "app.cjs", {}, text=plan(intra=3, min=3), env=options)
    assert seen.threads == [2]
    assert "instrumented create" in seen.stderr


@pytest.mark.parametrize("version", [BEFORE_EXTRA, NEWEST])
@pytest.mark.parametrize("existing", ["respect", "override"])
def test_where_the_native_shim_is_preloaded_it_alone_works(version, existing):
    """It can stop spinning in every version, so a quota leaves an old one its threads."""
    machine = platform.machine()
    if machine not in delivery.architectures():
        pytest.skip("this checkout has no build of the native shim")
    library = str(node_lab.mounted() / Path(delivery.native_library(machine)).relative_to(delivery.MOUNT_PATH))
    with shim_lab.cgroup("cpu", cfs_quota_us="150000") as enter:
        seen = run(
            application(version) / "app.cjs", text=plan(existing=existing), env={"LD_PRELOAD": library}, before=enter
        )
    assert seen.threads == [1]
    assert [line for line in seen.stderr.splitlines() if line] == seen.lines
    (line,) = seen.lines
    assert "intra_op=2, inter_op=1, spinning off" in line


def test_a_native_shim_whose_file_was_replaced_under_the_process_still_works_alone(tmp_path):
    """As an update of the ConfigMap does it."""
    machine = platform.machine()
    if machine not in delivery.architectures():
        pytest.skip("this checkout has no build of the native shim")
    mounted = node_lab.mounted() / Path(delivery.native_library(machine)).relative_to(delivery.MOUNT_PATH)
    library, update = tmp_path / "libraddle.so", tmp_path / "update.cjs"
    shutil.copy(mounted, library)
    update.write_text("require('fs').unlinkSync(process.env.LD_PRELOAD);")
    env = {"LD_PRELOAD": str(library), "NODE_OPTIONS": f"--require {update} --require {preload()}"}
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(intra=3, min=3), env=env)
    assert (seen.threads, len(seen.lines)) == ([2], 1)
    assert "set in the code" not in seen.lines[0]


def test_a_native_shim_that_does_not_act_leaves_the_runtime_to_the_one_of_nodejs():
    """Its file is in the process, and what the binding is linked to hasn't gone through it."""
    machine = platform.machine()
    if machine not in delivery.architectures():
        pytest.skip("this checkout has no build of the native shim")
    mounted = node_lab.mounted() / Path(delivery.native_library(machine)).relative_to(delivery.MOUNT_PATH)
    # Loaded behind the binding's own library, whose symbol is found first.
    (runtime,) = node_lab.package(f"onnxruntime-node@{NEWEST}").glob(
        "onnxruntime-node/bin/napi-v*/linux/x64/libonnxruntime.so.1"
    )
    seen = run(application(NEWEST) / "app.cjs", text=plan(intra=3, min=3), env={"LD_PRELOAD": f"{runtime}:{mounted}"})
    assert (seen.threads, len(seen.lines)) == ([2], 1)


@pytest.mark.parametrize("preloaded", ["/nowhere/libraddle.so", ""])
def test_a_preload_that_the_loader_refused_is_none(preloaded):
    seen = run(application(NEWEST) / "app.cjs", text=plan(intra=3, min=3), env={"LD_PRELOAD": preloaded})
    assert (seen.threads, len(seen.lines)) == ([2], 1)


def test_loading_the_shim_twice_is_loading_it_once(tmp_path):
    other = tmp_path / "node"
    shutil.copytree(Path(preload()).parent, other)
    options = {"NODE_OPTIONS": f"--require {preload()} --require {other / 'raddle.cjs'}"}
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(intra=3, min=3), env=options)
    assert (seen.threads, len(seen.lines)) == ([2], 1)


# --- other versions of Node.js --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", node_lab.NODE_VERSIONS)
@pytest.mark.parametrize("shape", ["app.cjs", "app.mjs", "worker.cjs"])
def test_every_nodejs_that_the_binding_loads_in_is_reached(version, shape):
    executable = node_lab.other_node(version)
    if version.startswith("14.") and shape == "app.mjs":
        pytest.skip("the program awaits at its top level, which Node.js can since 14.8 behind a flag")
    seen = run(application(NEWEST) / shape, {}, text=plan(intra=3, min=3), executable=executable)
    assert seen.threads == [2]
    assert len(seen.lines) == 1


def test_a_nodejs_too_old_for_the_binding_runs_its_program():
    """The file that every process loads is read by a Node.js of 2017."""
    old = node_lab.other_node("8.17.0")
    seen = run(application(NEWEST) / "argument.cjs", {}, text=plan(), executable=old)
    assert seen.sessions == [{"ran": True}]
    assert seen.lines == []


@pytest.mark.parametrize("readable", ["*", "programs"])
def test_nodejs_with_permissions_reads_what_it_may(readable):
    """Without /proc and /sys the plan stands as it is. Node.js itself allows the file that --require names."""
    executable = node_lab.other_node(MODERN)
    folder = application(NEWEST)
    packages = [node_lab.CACHE, folder, Path(preload()).parent]
    paths = ["*"] if readable == "*" else [*packages, node_lab.folder()]
    arguments = ["--permission", "--allow-addons", *(f"--allow-fs-read={path}" for path in paths)]
    seen = run(folder / "quiet.cjs", text=plan(intra=2), executable=executable, arguments=arguments)
    assert seen.sessions == [{"ran": True}]
    (line,) = seen.lines
    assert "intra_op=2, inter_op=1, spinning off" in line


def test_nodejs_that_may_not_read_the_shim_beyond_its_first_file_runs_as_without_it(tmp_path):
    executable = node_lab.other_node(MODERN)
    folder = application(NEWEST)
    elsewhere = tmp_path / "node"
    shutil.copytree(Path(preload()).parent, elsewhere)
    paths = (node_lab.CACHE, folder, node_lab.folder())
    arguments = ["--permission", "--allow-addons", *(f"--allow-fs-read={path}" for path in paths)]
    env = {"RADDLE_PLAN": plan(), "NODE_OPTIONS": f"--require {elsewhere / 'raddle.cjs'}"}
    seen = run(folder / "quiet.cjs", executable=executable, arguments=arguments, env=env)
    assert seen.sessions == [{"ran": True}]
    (line,) = seen.lines
    assert line.startswith("raddle: onnxruntime is left alone: Error: ")
