"""A multiprocessing pool whose workers each make a session once all of them are there: pool.py fork|spawn COUNT."""

import json
import multiprocessing
import os
import sys


def work(barrier):
    import onnxruntime

    barrier.wait(60)
    before = len(os.listdir("/proc/self/task"))
    session = onnxruntime.InferenceSession(os.environ["MODEL"])
    pool = len(os.listdir("/proc/self/task")) - before + 1
    barrier.wait(60)
    del session
    return {"pid": os.getpid(), "pool": pool}


def main():
    context = multiprocessing.get_context(sys.argv[1])
    count = int(sys.argv[2])
    with context.Manager() as manager:
        barrier = manager.Barrier(count)
        with context.Pool(count) as pool:
            print(json.dumps(pool.map(work, [barrier] * count, chunksize=1)))


if __name__ == "__main__":
    main()
