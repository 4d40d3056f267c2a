"""What a process does of the work of others: a unit of a library's, which is a function of libraries.py or stacks.py."""

import functools
import json
import os

import libraries
import stacks


@functools.cache
def made(library):
    """The work, not yet done."""
    return (getattr(libraries, library, None) or getattr(stacks, library))(None)


@functools.cache
def pools():
    """What knows the pools of threads of this process, which has worked."""
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


def piece(library, _=None):
    """A unit of the work: which process did it, and the count of threads that the library, its OpenMP or its BLAS says."""
    says = made(library)()
    if says is not None:
        return os.getpid(), says
    found = pools().info()
    counts = [one["num_threads"] for one in found if one["user_api"] == "openmp"]
    return os.getpid(), max(counts or [one["num_threads"] for one in found])


def application(environ, start_response):
    """A WSGI application that does a piece for each request."""
    pid, says = piece(os.environ["LIBRARY"])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": pid, "says": says}).encode()]
