"""Python's web servers in front of ONNX Runtime."""

from support.servers.row import Request, Row, Way, environment, pypi

WEB = environment(
    "web",
    "onnxruntime==1.32.0",
    "numpy==2.4.6",
    "gunicorn==27.0.1",
    "uvicorn==0.54.0",
    "hypercorn==0.18.0",
    "granian==2.8.7",
    "litserve==0.2.19",
    python="3.12",
)


def _row(name: str, package: str, *command: str, **more) -> Row:
    return Row(
        name=name,
        program=pypi(WEB, package, *command),
        container={"command": [command[0].rpartition("/")[2], *command[1:]]},
        image_env={"MODEL": "{models}/model.onnx", "PYTHONPATH": "{serving}"},
        request=more.pop("ask", Request()),
        **{"way": Way.SHIM, "by": "ONNX Runtime's options", **more},
    )


GUNICORN = ("{here}/gunicorn", "--chdir", "{serving}", "-b", "127.0.0.1:{port}", "serving:wsgi")
UVICORN = ("{here}/uvicorn", "--app-dir", "{serving}", "--port", "{port}", "serving:asgi")
ROWS = (
    _row("gunicorn", "gunicorn", *GUNICORN, most=5),
    _row(
        "gunicorn, 4 workers",
        "gunicorn",
        *(*GUNICORN, "-w", "4"),
        ask=Request(processes=4),
        why="a session in each worker",
        most=14,
    ),
    _row("uvicorn", "uvicorn", *UVICORN, most=8),
    _row(
        "uvicorn, 4 workers",
        "uvicorn",
        *(*UVICORN, "--workers", "4"),
        ask=Request(processes=4),
        why="a session in each worker",
        most=18,
    ),
    _row("Hypercorn", "hypercorn", *("{here}/hypercorn", "-b", "127.0.0.1:{port}", "serving:asgi"), most=8),
    _row(
        "Granian",
        "granian",
        *("{here}/granian", "--interface", "asginl", "--working-dir", "{serving}", "--port", "{port}", "serving:asgi"),
        most=12,
    ),
    _row(
        "LitServe",
        "litserve",
        "{here}/python",
        "{programs}/litserve_app.py",
        "{port}",
        most=20,
        ask=Request(path="/predict", body=b"{}", headers={"Content-Type": "application/json"}),
    ),
)
