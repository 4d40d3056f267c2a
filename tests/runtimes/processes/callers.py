"""Callers of one session, or of numpy and a session: callers.py COUNT SECONDS PAUSE_MS BLAS_SIDE.

Prints the pool's size, the runs made, and how many threads but the main one used CPU time for them.
"""

import json
import os
import sys
import threading
import time

import numpy as np
import onnxruntime


def cpu_ticks():
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        found[thread] = int(fields[11]) + int(fields[12])
    return found


def main():
    count, seconds, pause_s, side = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]) / 1000, int(sys.argv[4])
    before = len(os.listdir("/proc/self/task"))
    session = onnxruntime.InferenceSession(os.environ["MODEL"])
    pool = len(os.listdir("/proc/self/task")) - before + 1
    feed = {"input": np.ones((64, 256), np.float32)}
    left, right = np.ones((side, side), np.float32), np.ones((side, side), np.float32)
    session.run(None, feed)
    start = cpu_ticks()
    ends_at = time.monotonic() + seconds
    runs = []
    seen = {}

    def call():
        made = 0
        while time.monotonic() < ends_at:
            if side:
                np.matmul(left, right)
            session.run(None, feed)
            made += 1
            if pause_s:
                time.sleep(pause_s)
        runs.append(made)
        # A thread that ends takes its figures with it.
        seen.update(cpu_ticks())

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The main thread only waits for the callers, though starting them may cost it a tick.
    seen.pop(str(os.getpid()), None)
    busy = sum(ticks > start.get(thread, 0) for thread, ticks in seen.items())
    print(json.dumps({"pool": pool, "runs": sum(runs), "busyThreads": busy, "cpuS": sum(os.times()[:2])}))


main()
