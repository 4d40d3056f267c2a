"""Builds of small Go programs: once, one at a time, and with the log shown when they fail."""

import io
import subprocess
import threading

import pytest

from cluster import binaries, build, gomodule
from cluster.errors import DevclusterError
from cluster.progress import Progress
from cluster.versions import Version

WAIT_SECONDS = 60


class Said(io.StringIO):
    """A stream that tells when a text was written to it, and then may hold the writer up."""

    def __init__(self, text, go_on=None):
        super().__init__()
        self.text = text
        self.heard = threading.Event()
        self.go_on = go_on

    def write(self, text):
        written = super().write(text)
        if self.text in text:
            self.heard.set()
            if self.go_on is not None:
                assert self.go_on.wait(WAIT_SECONDS)
        return written


def small_program(folder, source):
    (folder / "source").mkdir()
    (folder / "source" / "main.go").write_text(source)
    return build.Program(
        name="small",
        version=Version(1, 0, 0),
        modules=(),
        commands=("small", "alias"),
        source=folder / "source",
        variables={"main.greeting": "hello"},
    )


PRINTS = 'package main\n\nimport "os"\n\nvar greeting string\n\nfunc main() { os.Stdout.WriteString(greeting) }\n'


@pytest.mark.cluster
def test_a_second_build_waits_for_the_first_and_uses_its_result(tmp_path):
    program, cache = small_program(tmp_path, PRINTS), tmp_path / "cache"
    second_stream = Said("is being built by process")
    first_stream = Said("building small 1.0.0", go_on=second_stream.heard)
    results = []

    def run(stream):
        results.append(build.build(program, cache, Progress(stream)))

    first = threading.Thread(target=run, args=(first_stream,))
    first.start()
    assert first_stream.heard.wait(WAIT_SECONDS)
    second = threading.Thread(target=run, args=(second_stream,))
    second.start()
    first.join(WAIT_SECONDS)
    second.join(WAIT_SECONDS)
    assert len(results) == 2
    assert results[0] == results[1]
    assert "built small" in first_stream.getvalue()
    assert "built small" not in second_stream.getvalue()
    assert subprocess.run([results[0] / "alias"], check=True, capture_output=True, text=True).stdout == "hello"


@pytest.mark.cluster
def test_a_failed_build_shows_the_end_of_its_log_and_leaves_no_result(tmp_path):
    program, cache = small_program(tmp_path, "package main\n\nfunc main() { undefinedName() }\n"), tmp_path / "cache"
    with pytest.raises(DevclusterError, match=r"undefined: undefinedName") as raised:
        build.build(program, cache, Progress(io.StringIO()))
    assert str(cache / "logs" / "small-1.0.0.log") in str(raised.value)
    assert build.built(program, cache) is None
    assert list(program.folder(cache).parent.iterdir()) == []


def test_another_source_or_version_is_another_place_in_the_cache(tmp_path):
    program = small_program(tmp_path, PRINTS)
    before = program.folder(tmp_path)
    (program.source / "main.go").write_text(PRINTS + "\n// changed\n")
    assert program.folder(tmp_path) != before
    assert program.folder(tmp_path).name.startswith("small-")
    assert program.folder(tmp_path).parent.name == "v1.0.0"


@pytest.mark.parametrize(
    "program",
    [
        binaries.control_plane(),
        *binaries.containerd(),
        binaries.runc(),
        binaries.helm(),
        binaries.metrics_server(),
        binaries.vpa_recommender(),
    ],
    ids=lambda program: program.name,
)
def test_the_hash_of_each_default_version_is_committed(program):
    for module in program.modules:
        assert f"\n{module} v{program.version} h1:" in gomodule.SUMS.read_text()


def test_a_module_is_pinned_as_its_own_module_file_pins_what_it_requires():
    upstream = {
        "go.etcd.io/etcdctl": {"Go": "1.24", "Require": [{"Path": "github.com/spf13/cobra", "Version": "v1.8.1"}]},
        "go.etcd.io/etcdutl": {"Go": "1.24", "Require": [{"Path": "github.com/spf13/cobra", "Version": "v1.8.1"}]},
    }
    assert gomodule.derive("etcdtools", Version(3, 6, 4), upstream) == (
        "module raddle.dev/devcluster/etcdtools\n\ngo 1.24\n\nrequire (\n\tgo.etcd.io/etcdctl v3.6.4\n"
        "\tgo.etcd.io/etcdutl v3.6.4\n\tgithub.com/spf13/cobra v1.8.1\n)\n"
    )


def test_staging_modules_of_kubernetes_are_the_published_ones_of_its_version():
    upstream = {
        "k8s.io/kubernetes": {
            "Go": "1.26.0",
            "Require": [{"Path": "k8s.io/api", "Version": "v0.0.0"}, {"Path": "k8s.io/klog/v2", "Version": "v2.130.1"}],
        }
    }
    assert gomodule.derive("controlplane", Version(1, 36, 3), upstream) == (
        "module raddle.dev/devcluster/controlplane\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n"
        "\tk8s.io/api v0.36.3\n\tk8s.io/klog/v2 v2.130.1\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n"
    )


def test_a_log_gets_few_progress_lines_and_every_statement():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.say("begins")
    for _ in range(100):
        progress.tick("goes on")
    progress.say("ends")
    assert stream.getvalue() == "devcluster: begins\ndevcluster: ends\n"
