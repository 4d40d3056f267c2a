"""What people run with models on their CPUs, each from PyPI: transcription, embeddings, kinds of files, pictures."""

from urllib.parse import quote

from support.servers.row import Request, Row, Way, environment, pypi

APPLICATIONS = environment(
    "applications",
    "onnxruntime==1.32.0",
    "numpy==2.4.6",
    "ctranslate2==4.8.5",
    "faster-whisper==1.2.1",
    "fastembed==0.9.1",
    "magika==1.0.3",
    "rembg[cli]==2.0.86",
    python="3.12",
)


def _row(name: str, package: str, **more) -> Row:
    program = pypi(APPLICATIONS, package, "{here}/python", "{programs}/applications.py", package, "{models}")
    return Row(name=name, program=program, **more)


def _picture() -> Request:
    """A picture for rembg, and the model of pictures in place of one that it would fetch."""
    asked = quote('{"model_path": "~/picture.onnx"}')
    parts = "".join(
        f'--part\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
        for name, more, value in (
            ("model", "", "u2net_custom"),
            ("om", "", "true"),
            ("file", '; filename="picture.ppm"', f"P3\n2 2\n255\n{'9 ' * 12}\n"),
        )
    )
    return Request(
        path=f"/api/remove?extras={asked}",
        body=(parts + "--part--\r\n").encode(),
        headers={"Content-Type": "multipart/form-data; boundary=part"},
    )


ROWS = (
    _row(
        "faster-whisper",
        "faster-whisper",
        way=Way.SHIM,
        by="CTranslate2's `intra_threads`, and `OMP_NUM_THREADS`",
        variables=("OMP_NUM_THREADS",),
        why="by itself it transcribes with four threads; the others are OpenBLAS's",
        most=6,
    ),
    _row("fastembed", "fastembed", way=Way.SHIM, by="ONNX Runtime's options", most=6),
    _row("Magika", "magika", way=Way.SHIM, by="ONNX Runtime's options", why="with its own model", most=6),
    Row(
        name="rembg's server",
        program=pypi(APPLICATIONS, "rembg", "{here}/rembg", "s", "--no-ui", "--host", "127.0.0.1", "--port", "{port}"),
        container={"command": ["rembg", "s"]},
        image_env={"HOME": "{models}", "U2NET_HOME": "{models}", "NUMBA_THREADING_LAYER": "workqueue"},
        request=_picture(),
        way=Way.PRESET,
        by="ONNX Runtime's options, `NUMBA_NUM_THREADS`",
        variables=("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        most=12,
    ),
)
