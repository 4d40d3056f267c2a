"""What all tests share: tiers, hypothesis profiles, golden files with one update flag, one local cluster a session."""

import functools
import gc
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from unavailable import UnavailableError

pytest_plugins = ["support.rows"]

# A shared, noisy machine must not fail a property for being slow.
settings.register_profile("raddle", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("raddle"), max_examples=15)
settings.load_profile("raddle")

# Folders and marks that `make unit` leaves out: whatever starts a cluster, a runtime, or programs of its own.
NOT_UNIT_FOLDERS = (
    "chart", "cluster", "e2e", "fuzz", "headlamp", "images", "integration", "lab", "native", "reliability", "runtimes",
    "servers", "vm",
)  # fmt: skip
NOT_UNIT_MARKS = ("cluster", "runtime", "kernel", "slow")
# What the unit tier may take of the CPU, of all its processes, with starting and collecting: a minute of two CPUs.
UNIT_CPU_SECONDS = 150
MEMORY = "/dev/shm"


def pytest_configure(config):
    if config.getoption("--unit"):
        config.option.markexpr += "".join(f" and not {mark}" for mark in NOT_UNIT_MARKS)
        settings.load_profile("quick")
    # Trees of thousands of files: on a disk they take 20 times as long. Virtual machines' disks are larger than memory.
    if "not e2e" in config.option.markexpr and _is_good_for_temporary_files(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _is_good_for_temporary_files(folder):
    if not os.access(folder, os.W_OK):
        return False
    facts = os.statvfs(folder)
    return not facts.f_flag & os.ST_NOEXEC and facts.f_bavail * facts.f_frsize > 4 << 30


def pytest_ignore_collect(collection_path, config):
    folder, *below = collection_path.relative_to(config.rootpath / "tests").parts or (".",)
    if config.getoption("--unit") and folder in NOT_UNIT_FOLDERS:
        return True
    refused = _refused_marks(config.option.markexpr)
    if not (refused and below and collection_path.suffix == ".py"):
        return None
    # By its text: to import a module and all that it imports, for nothing, costs more than most tests.
    marked = rf"^pytestmark = [^=]*\bmark\.({'|'.join(refused)})\b"
    return True if re.search(marked, collection_path.read_text(), re.MULTILINE) else None


@functools.cache
def _refused_marks(expression):
    """The marks of "not slow and not lab"; none of an expression of another form."""
    of_that_form = re.fullmatch(r"not \w+( and not \w+)*", expression)
    return re.findall(r"not (\w+)", expression) if of_that_form else []


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Thousands of tests and their modules stay to the end: without this, each full collection of garbage looks at them all.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    for item in _between(item for item in items if item.get_closest_marker("runtime")):
        item.add_marker(pytest.mark.matrix)
    yield
    # Clusters, servers in processes of their own and the kernel's clocks miss a deadline now and then where the machine
    # is shared: such a test gets a second try, which the last lines of the run name (RERUN). A pure test never does, nor
    # does one whose figures are kept.
    for item in items:
        measured = item.get_closest_marker("reliability")
        if not measured and any(map(item.get_closest_marker, ("cluster", "runtime", "kernel"))):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def _between(items):
    """Of the tests that are the same but for a runtime's release those of neither the oldest nor the newest one."""
    same = {}
    for item in items:
        parameters = dict(getattr(getattr(item, "callspec", None), "params", {}))
        release = str(parameters.pop("release", parameters.pop("version", "")))
        numbers = [int(number) for number in re.findall(r"\d+", release)]
        same.setdefault((item.path, item.originalname, repr(parameters)), []).append((numbers, item))
    for ordered in (sorted(group, key=lambda pair: pair[0]) for group in same.values()):
        yield from (item for _, item in ordered[1:-1])


# Files whose paths begin so start first, since they take longest: short ones fill up the end.
LONGEST = (
    "tests/integration",
    "tests/chart",
    "tests/runtimes",
    "tests/native",
    "tests/raddle_operator/test_trials",
    "tests/raddle_operator/test_tune",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, files that share a cluster of the session go to the same worker."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return _shared_cluster(file) or file

    @functools.cache
    def _shared_cluster(file):
        text = (config.rootpath / file).read_text()
        for fixture in ("api_server", "only_installed"):
            if re.search(rf"\b{fixture}[,)]", text):
                return fixture
        return "cluster" if file.startswith("tests/integration/") and "Cluster(" not in text else ""

    return Files(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    # What this machine has not got skips a test, wherever a tool says so.
    if call.excinfo and isinstance(call.excinfo.value, UnavailableError):
        why = str(call.excinfo.value)
        call.excinfo = pytest.CallInfo.from_call(lambda: pytest.skip(why), call.when).excinfo


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code prints now")
    parser.addoption("--unit", action="store_true", help="no cluster, runtime or kernel, and few examples: `make unit`")


@pytest.fixture
def golden(request):
    """golden("name.txt", text): text equals the file tests/<folder>/golden/name.txt (or is written there)."""

    def check(name, text):
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run pytest --update-golden and read the diff"
        assert text == path.read_text()

    return check


@pytest.fixture(scope="session", params=os.environ.get("RADDLE_KUBERNETES", "").split() or None)
def kubernetes(request):
    """The API server's version: the default one, or each that RADDLE_KUBERNETES names (`make matrix` does)."""
    from cluster import binaries, build
    from cluster.versions import DEFAULT_KUBERNETES, Version

    version = Version.parse(request.param) if hasattr(request, "param") else DEFAULT_KUBERNETES
    if version != DEFAULT_KUBERNETES and build.built(binaries.control_plane(version), binaries.cache_folder()) is None:
        pytest.skip(f"Kubernetes {version} is not built here: python -m cluster build --version {version}")
    return version


@pytest.fixture(scope="session")
def cluster(kubernetes):
    """A real etcd, API server, scheduler and controller manager, shared by one test session."""
    from cluster import Cluster

    with Cluster(version=kubernetes) as running:
        yield running


@pytest.fixture(scope="session")
def api_server(pytestconfig):
    """A real API server and no controllers, shared by one test session: with the CRDs and the namespace raddle-system.

    No policies are left there: those of the whole cluster are seen in every namespace.
    """
    from cluster import Cluster

    crds = str(pytestconfig.rootpath / "crds")
    # Off by default in 1.34: the server would drop an image volume and its mounts from the pod, silently.
    gates = {"ImageVolume": True}
    with Cluster(scheduler=False, controller_manager=False, feature_gates=gates, name="api-server") as running:
        running.kubectl("apply", "--server-side", "-f", crds)
        running.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
        running.kubectl("create", "namespace", "raddle-system")
        yield running


@pytest.fixture
def proves(request):
    """proves(runtime, version, control): if the test passes, that control works in that real runtime.

    docs/reference/supported.md is made of these (tools/generate/supported.py).
    """

    def note(runtime, version, control):
        request.node.user_properties.append(("proves", [runtime, version, control]))

    return note


# What the tests that passed have proven, and how many were skipped, in the process that reports.
_proven: list[list[str]] = []
_skipped: list[str] = []


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        _proven.extend(value for name, value in report.user_properties if name == "proves")
    if report.skipped:
        _skipped.append(report.nodeid)


# CPU seconds of each file's tests, with their fixtures and the programs that they waited for, and of a process in all.
_seconds: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid.partition("::")[0]] += _cpu_seconds() - before


def _cpu_seconds():
    return sum(os.times()[:4])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    # A worker of xdist has ended, and sent what it took; one that crashed has not.
    _seconds.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    # Of a process that started workers its own only: each of them sends what it took.
    _seconds["in all"] += sum(os.times()[:2]) if session.config.getoption("numprocesses", None) else _cpu_seconds()
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["cpu_seconds"] = dict(_seconds)
        return
    build = session.config.rootpath / "build"
    build.mkdir(exist_ok=True)
    # Workers of xdist send their reports to the process that started them.
    (build / "proofs.json").write_text(json.dumps({"proven": sorted(_proven), "skipped": len(_skipped)}))
    (build / "durations.json").write_text(json.dumps(_durations(), indent=1))
    if session.config.getoption("--unit") and _seconds["in all"] > UNIT_CPU_SECONDS:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _durations():
    """CPU seconds in all and by file, the longest first."""
    return {name: round(seconds, 2) for name, seconds in _seconds.most_common()}


def pytest_terminal_summary(terminalreporter, config):
    took = f"{_seconds['in all']:.0f} CPU seconds, of which build/durations.json has each file's"
    if config.getoption("--unit") and _seconds["in all"] > UNIT_CPU_SECONDS:
        terminalreporter.write_line(f"the unit tier took {took}: more than {UNIT_CPU_SECONDS}", red=True)
    else:
        terminalreporter.write_line(took)
