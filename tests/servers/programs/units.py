"""Does a unit of work once, and again for as long as each line of standard input says."""

import json
import sys
import time


def done(result, says=None):
    """What a unit returns in place of its result: what the library says that it counts."""
    return says


def serve(work):
    """Work once and say so; then, for each line with seconds, work until these are over and say how often that was."""
    says = work()
    print(json.dumps({} if says is None else {"says": says}), flush=True)
    for line in sys.stdin:
        units, start = 0, time.monotonic()
        while time.monotonic() - start < float(line):
            work()
            units += 1
        print(json.dumps({"units": units, "seconds": time.monotonic() - start}), flush=True)
