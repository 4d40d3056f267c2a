"""ONNX Runtime's C library and its headers.

Libraries come from Maven Central (the Java package carries libonnxruntime for Linux) and from the newest wheel, headers
from Debian's development package.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from pathlib import Path

from runtimes import pythons
from runtimes.fetching import CACHE, fetch, made
from unavailable import UnavailableError

HOME = CACHE / "maven"
# Oldest and newest of Maven Central that a policy's users may have, the first with the global pool in Python (1.23) and
# with bounded spinning (1.26); later ones are in the wheel only.
MAVEN_VERSIONS = ("1.16.3", "1.20.0", "1.23.2", "1.26.0", "1.29.0")
WHEEL_VERSION = "1.31.1"
VERSIONS = (*MAVEN_VERSIONS, WHEEL_VERSION)
OPENVINO_VERSION = "1.24.1"


@functools.cache
def release(version: str) -> Path:
    """A folder with libonnxruntime.so of this version, under every name that a program may ask for.

    From Maven Central it holds libonnxruntime4j_jni.so and onnxruntime.jar as well. Raises UnavailableError.
    """
    with made(HOME / f"onnxruntime-{version}") as folder:
        if folder and version == WHEEL_VERSION:
            python = pythons.release(f"ort-{version}")
            (result,) = (python.parents[1] / "lib").glob(
                "python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*.*"
            )
            shutil.copy(result, folder / "libonnxruntime.so")
        elif folder:
            artifact = f"-Dartifact=com.microsoft.onnxruntime:onnxruntime:{version}"
            fetch("mvn", "-q", "-B", "dependency:get", artifact, "-Dtransitive=false", cwd=folder)
            fetch("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}", cwd=folder)
            jar = (folder / f"onnxruntime-{version}.jar").rename(folder / "onnxruntime.jar")
            fetch("unzip", "-qo", "-j", jar, "ai/onnxruntime/native/linux-x64/*", "-d", folder)
        if folder:
            for name in ("libonnxruntime.so.1", f"libonnxruntime.so.{version}"):
                (folder / name).symlink_to("libonnxruntime.so")
    return HOME / f"onnxruntime-{version}"


@functools.cache
def openvino() -> Path:
    """A folder with libonnxruntime.so of OPENVINO_VERSION and the OpenVINO provider, from Intel's wheel."""
    python = pythons.release(f"ort-openvino-{OPENVINO_VERSION}")
    (folder,) = (python.parents[1] / "lib").glob("python3*/site-packages/onnxruntime/capi")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(f"libonnxruntime.so.{OPENVINO_VERSION}")
    return folder


@functools.cache
def headers(suite: str = "trixie") -> Path:
    """The folder of onnxruntime_c_api.h and onnxruntime_cxx_api.h: 1.21 in Debian trixie, a later one in sid."""
    with made(HOME / f"headers-{suite}") as folder:
        if folder:
            options = apt_options(suite, folder / "apt")
            fetch("apt-get", *options, "-qq", "download", f"libonnxruntime-dev/{suite}", cwd=folder)
            (package,) = folder.glob("*.deb")
            fetch("dpkg-deb", "-x", package, folder / "package")
            shutil.rmtree(folder / "apt")
    return HOME / f"headers-{suite}" / "package" / "usr" / "include" / "onnxruntime"


def apt_options(suite: str, apt: Path) -> list[str]:
    """What makes apt's commands see a suite of Debian, with no package installed; its lists are fetched into `apt`."""
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    # No package counts as installed, so that all are fetched.
    (apt / "status").touch()
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources.list").write_text(f"deb [signed-by={key}] {debian_mirror()} {suite} main\n")
    options = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
    }
    result = [f"-o{name}={value}" for name, value in options.items()]
    fetch("apt-get", "-qq", *result, "update")
    return result


def debian_mirror() -> str:
    """Where this machine gets its own Debian packages."""
    form = "$(ORIGIN) $(REPO_URI)"
    listed = fetch("apt-get", "indextargets", "--format", form, "Identifier: Packages").splitlines()
    debian = [line.split()[1] for line in listed if line.startswith("Debian ") and "security" not in line]
    if not debian:
        raise UnavailableError("apt has no lists of Debian packages here; run apt-get update")
    return debian[0]


@functools.cache
def go_headers(module_version: str) -> Path:
    """The folder of the onnxruntime_c_api.h that Go's binding is compiled with: API 20 in v1.13.0, 24 in v1.27.0."""
    with made(HOME / f"go-{module_version}") as folder:
        if folder:
            (folder / "go.mod").write_text("module lab\n\ngo 1.20\n")
            module = f"github.com/yalue/onnxruntime_go@{module_version}"
            result = fetch("go", "mod", "download", "-json", module, cwd=folder)
            shutil.copy(Path(json.loads(result)["Dir"]) / "onnxruntime_c_api.h", folder)
            # Included at its end, and not in the module.
            (folder / "onnxruntime_ep_c_api.h").touch()
    return HOME / f"go-{module_version}"
