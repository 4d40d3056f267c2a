"""What the door completes, behind the real door: libraries see it, frameworks do not, and each child has its own."""

import json
import os
import subprocess

import pytest
from support.runtimes import door_lab, families_lab

from raddle import env

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing to share"),
]

PLAN = {
    env.PLAN: "v=1;intra_op=2;inter_op=1;omp=2;blas=2;spinning=never",
    env.LITERALS: "KMP_BLOCKTIME=1;NUMBA_NUM_THREADS=2",
}
# What the process's own code sees, and what its libraries see.
SEEN = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
def seen(*_):
    names = "OMP_NUM_THREADS", "KMP_BLOCKTIME", "NUMBA_NUM_THREADS", "RADDLE_COMPLETED"
    c = {name: (libc.getenv(name.encode()) or b"").decode() for name in names}
    c["RADDLE_COMPLETED"] = c["RADDLE_COMPLETED"].partition(";#")[0]
    return [{name: os.environ[name] for name in names if name in os.environ}, c]
"""
LISTED = "KMP_BLOCKTIME=1;NUMBA_NUM_THREADS=2;ORT_INTRA_OP_NUM_THREADS=2;ORT_INTER_OP_NUM_THREADS=1;OMP_NUM_THREADS=2 "
# The blank tells it from a count of the application's own, for its children.
WHOLE = {"OMP_NUM_THREADS": "2 ", "KMP_BLOCKTIME": "1", "NUMBA_NUM_THREADS": "2", "RADDLE_COMPLETED": LISTED}


def said(code, **variables):
    """The last line of what the program prints, as JSON."""
    command = [*door_lab.prefix(), str(families_lab.venv()), "-c", SEEN + code]
    environ = {"PATH": os.environ["PATH"], "HOME": "/", **PLAN, **variables}
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


def test_code_sees_no_count_that_it_might_copy_and_libraries_see_all():
    code, libraries = said("print(json.dumps(seen()))")
    assert code == {"NUMBA_NUM_THREADS": "2"}
    assert libraries == WHOLE


@pytest.mark.parametrize("how", ["subprocess", "env", "spawn", "forkserver", "system"])
def test_each_child_has_the_same_however_it_is_started(how, tmp_path):
    (tmp_path / "child.py").write_text(SEEN + "if __name__ == '__main__': print(json.dumps(seen()))")
    start = {
        "subprocess": "import subprocess; subprocess.run([sys.executable, FILE])",
        "env": "import subprocess; subprocess.run([sys.executable, FILE], env=dict(os.environ))",
        "system": "os.system(f'{sys.executable} {FILE}')",
    }.get(
        how,
        f"import child, multiprocessing; print(json.dumps(multiprocessing.get_context('{how}').Pool(1).map(child.seen, [0])[0]))",
    )
    code, libraries = said(
        f"FILE = {str(tmp_path / 'child.py')!r}; sys.path.append({str(tmp_path)!r}); {start}", PYTHONPATH=str(tmp_path)
    )
    assert code == {"NUMBA_NUM_THREADS": "2"}
    # What Python code reads is in a copy of os.environ, and stays as it is there.
    assert libraries.items() >= (WHOLE.items() - {("RADDLE_COMPLETED", LISTED)})


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_count_that_a_parent_chooses_for_its_child_stays_also_where_it_is_the_planned_one(count):
    code, libraries = said(
        f"import subprocess; os.environ['OMP_NUM_THREADS'] = '{count}';"
        "subprocess.run([sys.executable, '-c', sys.orig_argv[2].partition('import subprocess')[0] + 'print(json.dumps(seen()))'])"
    )
    assert code["OMP_NUM_THREADS"] == libraries["OMP_NUM_THREADS"] == count


def test_joblib_gives_each_of_its_processes_one_thread():
    counts = said(
        "import joblib; print(json.dumps(joblib.Parallel(n_jobs=2)("
        "joblib.delayed(os.getenv)('OMP_NUM_THREADS') for _ in range(2))))"
    )
    assert counts == ["1", "1"]


BESIDE = """
import importlib, pathlib, time
def count(folder, of_the_elder, of_the_younger, code):
    folder, me = pathlib.Path(folder), os.getpid()
    (folder / str(me)).touch()
    while len(pids := sorted(int(file.name) for file in folder.iterdir() if file.name != "done")) < 2:
        time.sleep(0.01)
    while me != pids[0] and not (folder / "done").exists():
        time.sleep(0.01)
    exec(code)
    for name in of_the_elder if me == pids[0] else of_the_younger:
        importlib.import_module(name)
    import threadpoolctl
    counts = [one["num_threads"] for one in threadpoolctl.threadpool_info()], seen()[1]["OMP_NUM_THREADS"]
    (folder / "done").touch()
    return me, counts
"""


@pytest.mark.parametrize(
    ("method", "of_the_elder", "of_the_younger", "code", "counts"),
    [
        ("spawn", ("numpy",), ("numpy",), "", [({1}, "1 "), ({1}, "1 ")]),
        ("spawn", ("sklearn",), ("sklearn",), "", [({1}, "1 "), ({1}, "1 ")]),
        # It does something else, as multiprocessing's Manager.
        ("spawn", (), ("numpy",), "", [(set(), "2 "), ({2}, "2 ")]),
        ("spawn", ("numpy",), ("numpy",), "os.environ['OMP_NUM_THREADS'] = '2'", [({2}, "2"), ({2}, "2")]),
        # A fork has its parent's numpy, with its parent's count.
        ("fork", ("sklearn",), ("sklearn",), "", [({1, 2}, "1 "), ({1, 2}, "1 ")]),
    ],
)
def test_workers_share_the_cpus_when_each_of_them_imports_numpy_or_what_needs_it(
    method, of_the_elder, of_the_younger, code, counts, tmp_path
):
    (tmp_path / "worker.py").write_text(SEEN + BESIDE)
    (tmp_path / "pids").mkdir()
    parent = "import numpy;" if method == "fork" else ""
    arguments = str(tmp_path / "pids"), of_the_elder, of_the_younger, code
    each = said(
        f"sys.path.append({str(tmp_path)!r}); import worker, multiprocessing; {parent}"
        f"pool = multiprocessing.get_context({method!r}).Pool(2);"
        f"print(json.dumps(sorted(pool.starmap(worker.count, [{arguments}] * 2, chunksize=1))))",
        PYTHONPATH=str(tmp_path),
    )
    assert [(set(of_pools), of_openmp) for _, (of_pools, of_openmp) in each] == counts


@pytest.mark.parametrize(
    ("variables", "count"), [({}, 2), ({"OMP_NUM_THREADS": "1"}, 1), ({"NUMEXPR_NUM_THREADS": "3"}, 3)]
)
def test_numexpr_has_the_count_that_it_would_have_taken_from_the_environment(variables, count):
    found = said(
        "import unittest.mock, os; os.cpu_count = lambda: 8;"
        "import numexpr; print(json.dumps(numexpr.get_num_threads()))",
        **variables,
    )
    assert found == count
