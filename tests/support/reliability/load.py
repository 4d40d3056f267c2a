"""Pods that are created one after the other, all the time, and what came of each call."""

import http.client
import itertools
import time
from typing import NamedTuple

from cluster import ApiError
from cluster.background import Background
from cluster.objects import injected
from cluster.waiting import wait
from support.reliability.installed import pod


class Call(NamedTuple):
    """One pod's creation. `at_s` is when it began (time.monotonic()); `refused` says why there is no pod."""

    name: str
    at_s: float
    seconds: float
    has_values: bool
    refused: str = ""


class Load(Background):
    """Creates pods from several connections, from `with` to the end of the block: `calls` are those that were answered.

    Each connection creates `rate_per_s` pods a second at most; the scheduler binds them, and old ones are not deleted.
    """

    def __init__(self, space, *, connections=2, rate_per_s=10.0):
        super().__init__(connections)
        self._space, self._pause_s, self._numbers = space, 1 / rate_per_s, itertools.count()
        self.calls = []

    def go_on(self, count, *, with_values=False):
        """Wait for so many more calls, of which only those with values count where that is said."""
        seen = len(self.calls)
        wait(
            lambda: sum(one.has_values or not with_values for one in self.calls[seen:]) >= count,
            f"{count} more pods are created" + (" with values" if with_values else ""),
        )

    def run(self):
        with self._space.cluster.new_client() as client:
            while not self.end.wait(self._pause_s):
                self.calls.append(self._call(client, f"load-{next(self._numbers)}"))

    def _call(self, client, name):
        began_s = time.monotonic()
        has_values, refused = False, ""
        try:
            has_values = injected(client.post(self._space.pods_path, pod(name)))
        except (ApiError, OSError, http.client.HTTPException) as error:
            refused = str(error) or repr(error)
        return Call(name, began_s, time.monotonic() - began_s, has_values, refused)


def refused(calls):
    """Why calls were refused, one text per call."""
    return [one.refused for one in calls if one.refused]


def without_values(calls, *, since_s=0.0, until_s=float("inf")):
    """Calls of pods that exist and have no values, begun within this time."""
    return [one for one in calls if not one.has_values and not one.refused and since_s <= one.at_s < until_s]


def slowest_s(calls):
    """The longest call in seconds."""
    return max((one.seconds for one in calls), default=0.0)
