"""`make fuzz`: a test with the mark `seeds` tries the first few with all tests, and all of them where `-m fuzz` asks."""

import pytest

# So many tests share the seeds: workers end at about the same time, and a failure is named by few seeds.
SHARES = 100


def pytest_addoption(parser):
    parser.addoption("--seeds", help="with -m fuzz: try these instead, as a failure names them: FIRST-LAST, or one")


def pytest_generate_tests(metafunc):
    mark = metafunc.definition.get_closest_marker("seeds")
    if mark is None:
        return
    (many,), few = mark.args, mark.kwargs.get("few", 1)
    chosen = metafunc.config.getoption("--seeds", None)
    if chosen:
        first, _, last = chosen.partition("-")
        shares = [range(int(first), int(last or first) + 1)]
    else:
        step = -(-many // SHARES)
        shares = [range(start, min(start + step, many)) for start in range(0, many, step)]
    fuzzed = [pytest.param(share, marks=pytest.mark.fuzz, id=f"{share[0]}-{share[-1]}") for share in shares]
    metafunc.parametrize("seeds", [pytest.param(range(few), id="few"), *fuzzed])
