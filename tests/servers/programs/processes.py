"""Work of a library in each of several processes, which the first argument's way starts, and alone.

    processes.py WAY LIBRARY PROCESSES

A unit of work has the count of threads of each process (pieces.py). As in libraries.py.
"""

import functools
import sys

import units
from pieces import made, piece


def alone(library, processes):
    return lambda: [piece(library)]


def loky(library, processes):
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=-1)
    return lambda: parallel(delayed(piece)(library) for _ in range(processes))


def _pool(method):
    def start(library, processes):
        import multiprocessing

        # Before its processes start, as of a program that has its imports at the top.
        made(library)
        pool = multiprocessing.get_context(method).Pool(processes)
        return lambda: pool.map(piece, [library] * processes, chunksize=1)

    return start


fork, spawn, forkserver = map(_pool, ("fork", "spawn", "forkserver"))


def executor(library, processes):
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(processes)
    return lambda: list(pool.map(piece, [library] * processes))


def dask(library, processes):
    from distributed import Client, LocalCluster

    client = Client(LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None))
    return lambda: client.gather(client.map(functools.partial(piece, library), range(processes), pure=False))


def ray(library, processes):
    import ray as framework

    framework.init(num_cpus=processes, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    remote = framework.remote(piece)
    return lambda: framework.get([remote.remote(library) for _ in range(processes)])


def spark(library, processes):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(f"local[{processes}]").config("spark.ui.enabled", "false").getOrCreate()
    return lambda: (
        session.sparkContext.parallelize(range(processes), processes).map(functools.partial(piece, library)).collect()
    )


def rank(library, processes):
    """One of the processes of torchrun: all begin when the first does, which has the standard input, and wait for the last."""
    import torch.distributed as group

    group.init_process_group("gloo")

    def together():
        group.broadcast_object_list([None], src=0)
        found = [None] * group.get_world_size()
        group.all_gather_object(found, piece(library))
        return found

    while group.get_rank():
        together()
    return together


def unit(run, processes):
    """A unit is what `run` does; the first is done until each process had its part. It says all their counts."""
    counts = {}

    def work():
        counts.update(run())
        while len(counts) < processes:
            counts.update(run())
        return sorted(counts.values())

    return work


if __name__ == "__main__":
    way, library, processes = sys.argv[1], sys.argv[2].replace("-", "_"), int(sys.argv[3])
    units.serve(unit(globals()[way](library, processes), processes))
