"""What the build stages set, so that two builds of the same sources are the same."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "images"))
import stage  # noqa: E402  # a program beside the Dockerfiles


@pytest.mark.parametrize(
    ("before", "after"), [(0o600, 0o644), (0o664, 0o644), (0o700, 0o755), (0o775, 0o755), (0o444, 0o644)]
)
def test_modes_do_not_depend_on_the_umask_of_the_checkout(tmp_path, before, after):
    file = tmp_path / "folder" / "file"
    file.parent.mkdir(mode=0o700)
    file.write_text("")
    file.chmod(before)
    stage.set_modes(tmp_path)
    assert file.stat().st_mode & 0o777 == after
    assert file.parent.stat().st_mode & 0o777 == 0o755


def test_pruning_leaves_packages_of_the_client_importable_and_takes_its_models(tmp_path):
    kept = [
        "kubernetes/client/models/__init__.py",
        "kubernetes/client/models/v1_object_meta.py",
        "kubernetes/client/rest.py",
        "kopf/api.py",
        "scipy/stats/__init__.py",
        "numpy/testing/__init__.py",
        "a.dist-info/METADATA",
    ]
    gone = [
        "kubernetes/client/models/v1_pod.py",
        "kubernetes/aio/client/api/core_v1_api.py",
        "a.dist-info/RECORD",
        "a.dist-info/direct_url.json",
        "scipy/stats/tests/data/levy.npz",
        "numpy/tests/test_lazyloading.py",
        "bin/rich",
    ]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    stage.prune(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


@pytest.mark.parametrize("reads_models", [False, True])
def test_only_an_image_that_reads_models_has_what_runs_them(tmp_path, reads_models):
    runners = {"raddle/runner/run_model.py", "raddle/_native/x86_64/run-model"}
    others = {"raddle/shim.py", "raddle/_native/x86_64/libraddle.so"} | (
        {"onnx/__init__.py"} if reads_models else set()
    )
    for name in runners | others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    stage.prune(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == (others | runners if reads_models else others)


def test_no_process_of_ours_asks_for_what_is_pruned():
    program = """if True:
        import sys
        import raddle_operator.controller.process, raddle_operator.webhook.process, raddle_operator.controller.handlers
        import kubernetes, pathlib
        root = pathlib.Path(kubernetes.__file__).parent.parent
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) and module.__name__.startswith("kubernetes"):
                print(pathlib.Path(module.__file__).relative_to(root))
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [Path(line) for line in run.stdout.splitlines()]
    assert loaded
    asked = {path.name for path in loaded for pattern in stage.UNUSED if path.match(pattern)}
    assert asked == set(stage.KEPT)


def test_the_tuner_needs_no_tests_of_its_packages():
    program = """if True:
        import sys
        import raddle_tuner.commands.tuner, raddle_tuner.trials.http_load, raddle_tuner.trials.runner_load
        print([name for name in sys.modules if ".tests" in name])
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_wheels_are_asked_for_by_the_targets_platform():
    options = stage._platform("aarch64")
    assert "--platform=manylinux_2_28_aarch64" in options
    assert not [option for option in options if "x86_64" in option]
