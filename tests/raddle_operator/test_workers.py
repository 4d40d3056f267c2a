"""Worker processes are read from what servers read themselves."""

import pytest

from raddle_operator.injection.workers import SIDECARS, workers
from raddle_operator.objects.policy import pod_from_object


def container(arguments=(), **variables):
    entries = [{"name": name, "value": value} for name, value in variables.items()]
    obj = {"metadata": {}, "spec": {"containers": [{"name": "c", "args": list(arguments), "env": entries}]}}
    return pod_from_object(obj).containers[0]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["gunicorn", "-w", "4", "app:app"], 4),
        (["gunicorn", "-w4", "app:app"], 4),
        (["/usr/local/bin/gunicorn", "--workers=8"], 8),
        (["gunicorn", "--workers", "8"], 8),
        (["gunicorn", "-w", "2", "-w", "3"], 3),
        (["python", "-m", "gunicorn", "-w", "2"], 2),
        (["uvicorn", "app:app", "--workers", "2"], 2),
        (["uvicorn", "app:app", "-w", "2"], 1),
        (["fastapi", "run", "--workers", "3"], 3),
        (["sh", "-c", "exec gunicorn -w 4 app:app"], 4),
        (["sh", "-c", "gunicorn -w '4' app:app"], 4),
        (["sh", "-c", "gunicorn -w $(nproc) app:app"], 1),
        (["gunicorn", "-w"], 1),
        (["gunicorn", "-w", "0"], 1),
        (["gunicorn", "-w", "99999"], 1),
        (["python", "serve.py", "--workers", "4"], 1),
        (["echo", "x" * 10_000_000 + " gunicorn -w 4"], 1),
        ([], 1),
    ],
)
def test_workers_are_read_from_the_command_line(arguments, count):
    assert workers(container(arguments))[0] == count


@pytest.mark.parametrize(
    ("variables", "count", "source"),
    [
        ({"WEB_CONCURRENCY": "3"}, 3, "WEB_CONCURRENCY"),
        ({"GUNICORN_CMD_ARGS": "--bind :80 --workers 5", "WEB_CONCURRENCY": "3"}, 5, "GUNICORN_CMD_ARGS"),
        ({"UVICORN_WORKERS": "2"}, 2, "UVICORN_WORKERS"),
        ({"TS_DEFAULT_WORKERS_PER_MODEL": "2"}, 2, "TS_DEFAULT_WORKERS_PER_MODEL"),
        ({"MLSERVER_PARALLEL_WORKERS": "2"}, 2, "MLSERVER_PARALLEL_WORKERS"),
        ({"WEB_CONCURRENCY": "many"}, 1, ""),
        ({"WEB_CONCURRENCY": ""}, 1, ""),
    ],
)
def test_workers_are_read_from_variables(variables, count, source):
    assert workers(container(**variables)) == (count, source)


def test_a_servers_argument_wins_over_its_variable():
    assert workers(container(["gunicorn", "-w", "2"], WEB_CONCURRENCY="3")) == (2, "gunicorn --workers")


def test_known_sidecars_are_container_names():
    assert all(len(name) <= 63 and name == name.lower() for name in SIDECARS)
