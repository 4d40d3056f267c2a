"""Uses torch as an application would, step by step, and prints as JSON what each step saw of its own process.

Run by Debian's Python. Arguments: the folder of saved models, and a JSON list of steps, [name, argument, ...] each.
Without steps it imports torch once, and forks a process that takes the steps of each line of its input: see `forked`.
"""

import contextlib
import copy
import ctypes
import importlib
import json
import multiprocessing
import os
import pathlib
import sys
import threading
import time

import torch

FOLDER = pathlib.Path(sys.argv[1])
TASKS = pathlib.Path("/proc/self/task")
# A thread that has run this long during a step has worked in it.
WORKED_S = 0.005
SIDE = 600


def comm(task):
    return (task / "comm").read_text().strip()


def allowed(task):
    lines = (task / "status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


def cpu_s(task):
    """Time on a CPU, exact: sched(7), /proc/<pid>/schedstat. 0 of a thread that has just ended."""
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def threads():
    while True:
        tasks = list(TASKS.iterdir())
        # A thread may end between the two looks.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return {
                "total": len(tasks),
                "pool": sum(comm(task) == "PTThreadPool" for task in tasks),
                "cpus": sorted({allowed(task) for task in tasks}),
            }


class Forks(torch.nn.Module):
    """Two branches for the inter-op pool, and one for the caller."""

    def branch(self, x: torch.Tensor, rounds: int) -> torch.Tensor:
        for _ in range(rounds):
            x = torch.tanh(x)
        return x

    def forward(self, x: torch.Tensor, rounds: int) -> torch.Tensor:
        first = torch.jit.fork(self.branch, x, rounds)
        second = torch.jit.fork(self.branch, x + 1, rounds)
        own = self.branch(x + 2, rounds)
        return own + torch.jit.wait(first) + torch.jit.wait(second)


def save():
    torch.jit.script(Forks()).save(str(FOLDER / "forks.pt"))
    return str(FOLDER)


def loaded():
    return torch.jit.load(str(FOLDER / "forks.pt"))


def script(rounds=2):
    loaded()(torch.ones(SIDE, SIDE), rounds)
    return threads()


def eager(rounds=2):
    x = torch.ones(SIDE, SIDE)
    for _ in range(rounds):
        torch.tanh(x)
    return threads()


def eager_thread():
    """The CPUs that a request thread may run on once it has called torch."""
    seen = []
    thread = threading.Thread(target=lambda: (eager(), seen.append(sorted(os.sched_getaffinity(0)))))
    thread.start()
    thread.join()
    return seen[0]


def callers(count, kind, rounds):
    """How many threads worked while `count` callers used one model at once; this one only waits for them."""
    model = loaded() if kind == "script" else None
    # Made without a parallel loop: this thread must not get a team of its own, which would spin meanwhile.
    x = torch.frombuffer(bytearray(4 * SIDE * SIDE), dtype=torch.float32).reshape(SIDE, SIDE)
    before = {task.name: cpu_s(task) for task in TASKS.iterdir()}
    # Threads of a team end with the caller that they belong to, so all are kept until they are counted.
    ready, done, counted = (threading.Barrier(count + 1) for _ in range(3))

    def call():
        ready.wait()
        if model is not None:
            model(x, rounds)
        else:
            for _ in range(rounds):
                torch.tanh(x)
        done.wait()
        counted.wait()

    calling = [threading.Thread(target=call) for _ in range(count)]
    for thread in calling:
        thread.start()
    ready.wait()
    done.wait()
    others = [task for task in TASKS.iterdir() if task.name != str(os.getpid())]
    worked = [task for task in others if cpu_s(task) - before.get(task.name, 0.0) > WORKED_S]
    counted.wait()
    for thread in calling:
        thread.join()
    return len(worked)


def throttled():
    """nr_throttled of the version 1 cgroup that limits this process's CPU."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            stat = pathlib.Path("/sys/fs/cgroup/cpu" + path, "cpu.stat").read_text().split()
            return int(stat[stat.index("nr_throttled") + 1])
    raise LookupError("no cpu cgroup")


def requests(count, kinds, pause_s):
    """CPU seconds, throttled periods and pools' threads of `count` requests that each use onnxruntime, torch or both."""
    import onnxruntime as ort

    # A helper of the import's own is among them.
    before = threads()["total"]
    session = ort.InferenceSession(str(FOLDER / "chain.onnx"), providers=["CPUExecutionProvider"])
    x = torch.ones(SIDE, SIDE)
    feed = {"input": x.numpy()[:64, :256]}

    def one():
        if "onnxruntime" in kinds:
            session.run(None, feed)
        if "torch" in kinds:
            torch.tanh(x)

    one()
    stopped, used = throttled(), time.process_time()
    for _ in range(count):
        one()
        time.sleep(pause_s)
    used = time.process_time() - used
    return {"cpu_s": used, "throttled": throttled() - stopped, "pools": threads()["total"] - before}


def fork():
    """Forks, as a preloading server does; what the child's Raddle has to say is on stderr."""
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


class Counts(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, _):
        return torch.get_num_threads()


def loader():
    """The thread count in a DataLoader's forked worker."""
    return int(next(iter(torch.utils.data.DataLoader(Counts(), num_workers=1))))


def native_pool():
    """Makes the inter-op pool from C++, behind Python's back."""
    bench = torch._C.ThroughputBenchmark(loaded()._c)
    bench.add_input(torch.ones(1, 1), 1)
    config = torch._C.BenchmarkConfig()
    config.num_calling_threads, config.num_warmup_iters, config.num_iters = 1, 1, 1
    config.profiler_output_path = ""
    bench.benchmark(config)
    return threads()


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def uses():
    """TorchScript in its many ways: each makes 2 of 1, by sixteen threads at the first."""
    one, made = torch.ones(1), []
    model = torch.jit.script(Double().eval())
    calling = [threading.Thread(target=lambda: made.append(model(one).item())) for _ in range(16)]
    for thread in calling:
        thread.start()
    for thread in calling:
        thread.join()
    ways = (
        torch.jit.trace(Double(), one),
        torch.jit.freeze(model),
        torch.jit.optimize_for_inference(torch.jit.script(Double().eval())),
        torch.fx.symbolic_trace(Double()),
        copy.deepcopy(model),
        torch.jit.CompilationUnit("def double(x):\n  return x * 2\n").double,
        lambda x: torch.jit.wait(torch.jit.fork(Double(), x)),
    )
    return made + [way(one).item() for way in ways]


def hooks():
    """The methods and functions of torch._C that TorchScript is run by and that are not torch's own now."""
    native = torch._C
    runs = (native.ScriptMethod.__call__, native.ScriptFunction.__call__, native.fork, native._parallel_info)
    return [repr(run) for run in runs if type(run).__name__ == "function"]


def set_inter_numpys(count):
    """Asks for an inter-op count of numpy's own type."""
    import numpy as np

    torch.set_num_interop_threads(np.int64(count))


def workers(how):
    """Of two forked workers: the thread count, whether a module is called as before, and the type of torch's getter."""
    given, model = torch.ones(1, 4), torch.nn.Linear(4, 4)
    if how == "set":
        torch.set_num_threads(2)
    if how == "openmp":
        # torch tells OpenMP its own at the first call.
        torch.get_num_threads()
        maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
        for library in {line.split()[-1] for line in maps if "omp.so" in line}:
            ctypes.CDLL(library).omp_set_num_threads(3)
        assert torch.get_num_threads() == 3
    call = torch.nn.Module.__call__
    context = multiprocessing.get_context("fork")
    barrier, said = context.Barrier(2), context.Queue()

    def work():
        barrier.wait(60)
        model(given)
        said.put((torch.get_num_threads(), torch.nn.Module.__call__ is call, type(torch.get_num_threads).__name__))
        barrier.wait(60)

    working = [context.Process(target=work) for _ in range(2)]
    for worker in working:
        worker.start()
    seen = [said.get(timeout=60) for _ in working]
    for worker in working:
        worker.join()
    return seen


def set_beside():
    """The counts of a thread that has worked before another one sets 1, and of one that works only then."""
    counts, worked, is_set = [], threading.Event(), threading.Event()

    def work():
        eager(1)
        counts.append(torch.get_num_threads())
        worked.set()
        is_set.wait(60)
        eager(1)
        counts.append(torch.get_num_threads())

    first, late = threading.Thread(target=work), threading.Thread(target=work)
    first.start()
    worked.wait(60)
    torch.set_num_threads(1)
    is_set.set()
    first.join()
    late.start()
    late.join()
    return counts[:3]


class Executed:
    """A finder and loader of torch as it has been executed already: only that is left out of an import."""

    def find_spec(self, name, path=None, target=None):
        spec = copy.copy(torch.__spec__) if name == "torch" else None
        if spec:
            spec.loader = self
        return spec

    def create_module(self, spec):
        return torch

    def exec_module(self, module):
        pass


def shim():
    """Activates Raddle as sitecustomize does; whether it waits for runtimes."""
    sys.path.insert(0, os.environ["PYTHONPATH"])
    return importlib.import_module("raddle.shim").activate()


def imported():
    """Activates Raddle, and imports torch under its hook."""
    del sys.modules["torch"]
    sys.meta_path.insert(0, Executed())
    shim()
    assert importlib.import_module("torch") is torch


def forked():
    """The steps of a line of input, in a process forked for it with this line's variables, CPUs and output files.

    The parent never returns: it prints each child's exit status, and ends with its input.
    """
    for line in sys.stdin:
        # Nothing that a fork would lose.
        assert threads()["total"] == 1
        child = os.fork()
        if not child:
            asked = json.loads(line)
            for number, path in ((1, asked["stdout"]), (2, asked["stderr"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            os.environ.clear()
            os.environ.update(asked["env"])
            if asked["cpus"]:
                os.sched_setaffinity(0, asked["cpus"])
            return asked["steps"]
        print(os.waitpid(child, 0)[1], flush=True)
    os._exit(0)


def is_torchs_own():
    names = ("set_num_threads", "set_num_interop_threads", "get_num_interop_threads")
    return hooks() == [] and all(type(getattr(torch, name)).__name__ == "builtin_function_or_method" for name in names)


def marks():
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return [line.partition("/memfd:raddle: ")[2].removesuffix(" (deleted)") for line in lines if "raddle: " in line]


def records():
    from raddle.report import record

    return record.sessions


# By their names: Raddle may have replaced them since.
TORCHS = {
    "intra": "get_num_threads",
    "inter": "get_num_interop_threads",
    "set_intra": "set_num_threads",
    "set_inter": "set_num_interop_threads",
}
STEPS = {"info": torch.__config__.parallel_info}
for function in (
    *(threads, save, script, eager, eager_thread, callers, requests, fork, loader, native_pool, uses, hooks),
    *(is_torchs_own, marks, records, set_inter_numpys, set_beside, workers, shim, imported),
):
    STEPS[function.__name__] = function


def taken(name, *arguments):
    return (getattr(torch, TORCHS[name]) if name in TORCHS else STEPS[name])(*arguments)


if __name__ == "__main__":
    asked = json.loads(sys.argv[2]) if sys.argv[2:] else forked()
    seen = [taken(*step) for step in asked]
    sys.stdout.write("\n" + json.dumps(seen) + "\n")
    sys.stdout.flush()
    # torch 1.13 now and then aborts while it takes its pool down at exit, without Raddle too.
    os._exit(0)
