"""What is in an image, as CycloneDX 1.6: Python's packages by cyclonedx-py, Debian's by what the base says of itself.

The tool has an environment of its own below the cache, pinned by hash. The same image gives the same text.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.locking import exclusive
from cluster.progress import Progress
from images import buildah
from images.build import Built
from images.model import FOLDER, ImagesError, Sources, cache

SUFFIX = ".cdx.json"
MEDIA_TYPE = "application/vnd.cyclonedx+json"
_SPECIFICATION = "1.6"
_VALIDATE = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(wrong) if wrong else 0)
"""


def document(built: Built, sources: Sources, progress: Progress) -> str:
    """The image's SBOM as JSON, checked against CycloneDX's schema. Raises ImagesError."""
    python = _tool(progress)
    requirements = built.image.requirements
    result: dict[str, Any] = {"bomFormat": "CycloneDX", "specVersion": _SPECIFICATION, "version": 1}
    result["metadata"] = {"component": _image(built, sources)}
    components = [_raddle(sources)]
    if requirements is not None:
        components += _python_packages(python, sources.folder / "images" / requirements)
        components += _debian_packages(built)
    result["components"] = components
    result["dependencies"] = [{"ref": result["metadata"]["component"]["bom-ref"], "dependsOn": _references(components)}]
    text = json.dumps(result, indent=1, sort_keys=True) + "\n"
    _run([str(python), "-c", _VALIDATE], text)
    return text


def _references(components: list[dict[str, Any]]) -> list[str]:
    return sorted(str(one["bom-ref"]) for one in components)


def _image(built: Built, sources: Sources) -> dict[str, Any]:
    purl = f"pkg:oci/{built.image.name}@{quote(built.config_digest, safe='')}?arch={built.architecture}"
    return {"type": "container", "name": built.image.name, "version": sources.version, "purl": purl, "bom-ref": purl}


def _raddle(sources: Sources) -> dict[str, Any]:
    purl = f"pkg:pypi/raddle@{sources.version}"
    licences = [{"license": {"id": "Apache-2.0"}}]
    return {
        "type": "library", "name": "raddle", "version": sources.version, "purl": purl, "bom-ref": purl,
        "licenses": licences,
    }  # fmt: skip


def _python_packages(python: Path, requirements: Path) -> list[dict[str, Any]]:
    command = [str(python), "-m", "cyclonedx_py", "requirements", str(requirements), "--output-reproducible"]
    content = json.loads(_run([*command, "--spec-version", _SPECIFICATION, "--output-format", "JSON"], ""))
    result = []
    for component in content["components"]:
        # The tool names them by their line in the file, and where the machine's own index is.
        component["bom-ref"] = component["purl"]
        component.pop("externalReferences", None)
        component.pop("description", None)
        result.append(component)
    return result


def _debian_packages(built: Built) -> list[dict[str, Any]]:
    result = []
    with buildah.mounted(built.name) as root:
        folder = root / "var" / "lib" / "dpkg" / "status.d"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            fields = dict(_fields(path.read_text()))
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
            result.append({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl})
    return result


def _fields(control: str) -> Iterator[tuple[str, str]]:
    for line in control.splitlines():
        key, colon, value = line.partition(": ")
        if colon and not line.startswith(" "):
            yield key, value


def _tool(progress: Progress) -> Path:
    """The Python of the tool's environment, made when it isn't there."""
    requirements = FOLDER / "requirements-sbom.txt"
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = cache() / f"sbom-{key}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        with exclusive(cache() / f"sbom-{key}.lock", "the SBOM tool", progress):
            if not (home / "ready").exists():
                progress.say("installing the SBOM tool")
                venv.create(home, with_pip=True, clear=True)
                _run([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(requirements)], "")
                (home / "ready").touch()
    return python


def _run(command: list[str], content: str) -> str:
    run = subprocess.run(command, input=content, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ImagesError(f"{' '.join(command[1:4])} failed:\n{run.stderr[-2000:]}")
    return run.stdout
