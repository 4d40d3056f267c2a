"""The places of ONNX Runtime's functions in its tables, as the native shim has them, against the real headers."""

import re
import subprocess
from pathlib import Path

import pytest

from runtimes import fetching, libonnxruntime

pytestmark = pytest.mark.runtime

NATIVE = Path(__file__).parents[2] / "runtime" / "native"
SLOTS = [NATIVE / "slots.h", NATIVE / "keys.h"]
STRUCTS = {"SLOT": "OrtApi", "EDITOR": "OrtModelEditorApi"}
# Where a header of which API comes from; the newest that is published in a package is 24.
HEADERS = {
    20: lambda: libonnxruntime.go_headers("v1.13.0"),
    21: libonnxruntime.headers,
    22: lambda: libonnxruntime.go_headers("v1.21.0"),
    24: lambda: libonnxruntime.go_headers("v1.27.0"),
}


def slots():
    """(enumerator, struct, member) of each place."""
    found = re.findall(r"\b(SLOT|EDITOR)_(\w+) = \d+", "".join(path.read_text() for path in SLOTS))
    return [(f"{kind}_{name}", STRUCTS[kind], name) for kind, name in found if name != "Slots"]


def known(header, struct, member):
    """Whether this header's struct has the member."""
    body = header.split(f"struct {struct} {{", 1)[-1].split("\n};", 1)[0] if f"struct {struct} {{" in header else ""
    return re.search(rf"\b{member}\b\s*[,)]", body) or re.search(
        rf"ORT_CLASS_RELEASE\({member.removeprefix('Release')}\)", body
    )


@pytest.mark.parametrize("api", HEADERS)
def test_each_place_is_the_one_that_the_compiler_finds_in_the_header(api, tmp_path):
    folder = HEADERS[api]()
    header = (folder / "onnxruntime_c_api.h").read_text()
    assert f"#define ORT_API_VERSION {api}\n" in header
    checked = [
        f'_Static_assert(offsetof({struct}, {member}) == {slot} * sizeof(void*), "{member}");'
        for slot, struct, member in slots()
        if known(header, struct, member)
    ]
    assert len(checked) > 40
    source = tmp_path / "check.c"
    source.write_text(
        "\n".join(
            [
                "#include <onnxruntime_c_api.h>",
                "#include <stddef.h>",
                *(f'#include "{path}"' for path in SLOTS),
                *checked,
            ]
        )
    )
    done = subprocess.run(
        [fetching.tool("gcc"), "-fsyntax-only", f"-I{folder}", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_place_is_in_some_header():
    texts = [(HEADERS[api]() / "onnxruntime_c_api.h").read_text() for api in HEADERS]
    unknown = [slot for slot, struct, member in slots() if not any(known(text, struct, member) for text in texts)]
    assert unknown == []
