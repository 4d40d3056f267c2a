"""What a policy's imageEnv may say: what the image itself sets, and nothing that runs code of the policy's author.

Raddle writes these values into other people's pods. So they may name files of the image, but not bring code with them,
take it from the network or from folders that anybody can fill. The CRDs have the same patterns as CEL rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from raddle_operator.objects.reading import SpecError, text_map

NAMES: Final = ("PYTHONPATH", "PYTHONUSERBASE", "NODE_OPTIONS", "LD_PRELOAD", "JAVA_TOOL_OPTIONS")

# Folders that are no part of an image, with what may stand between their slashes.
_OUTSIDE: Final = "(?:/[.]?)*/(?:proc|dev|tmp|var(?:/[.]?)*/tmp)(?:[^.a-zA-Z0-9_-]|$)"


def _not_of_the_image(separators: str) -> str:
    """In a list of paths: one that is relative, goes up, or lies outside the image."""
    return rf"(?:^|[{separators}])(?:[^/{separators}]|{_OUTSIDE})|/[.][.](?:[/\x0a{separators}]|$)"


# Read by Python and by the API server (RE2): what must not be found. Node.js and Java drop quotes from within words
# (ParseNodeOptionsEnvVar in node_options.cc, parse_options_buffer in arguments.cpp), so a quote could hide anything.
FORBIDDEN: Final[Mapping[str, str]] = {
    "NODE_OPTIONS": r"(?i)[\x22\x5c]|--(?:import|loader|experimental[-_]loader|inspect)|(?:data|https?):"
    rf"|(?:^| )(?:-r|--require)[ =]+(?:{_OUTSIDE}|(?:[^ ]*/)?[.][.](?:[/ ]|$))",
    "JAVA_TOOL_OPTIONS": r"[\x22\x27]|-javaagent|-agentlib|-agentpath|-Xrun|-Dcom[.]sun[.]management"
    r"|-XX:(?:OnError|OnOutOfMemoryError|Flags|VMOptionsFile)|(?:^|[\x09-\x0d ])@",
    "LD_PRELOAD": _not_of_the_image(": "),
    "PYTHONPATH": _not_of_the_image(":"),
}
_ALLOWED: Final[Mapping[str, str]] = {
    "NODE_OPTIONS": "must have no --import, --loader or --inspect, no URL or quote, and require files of the image",
    "JAVA_TOOL_OPTIONS": "must have no agent, no option that runs a command, opens a port or reads options, no quote",
    "LD_PRELOAD": "must be absolute paths without .., none below /proc, /dev, /tmp or /var/tmp",
    "PYTHONPATH": "must be absolute paths without .., none below /proc, /dev, /tmp or /var/tmp",
}
_PATTERNS: Final = {name: re.compile(pattern) for name, pattern in FORBIDDEN.items()}


def message(name: str) -> str:
    """What the API server says where it refuses a value."""
    return f"imageEnv.{name} {_ALLOWED[name]}; else set {name} in the pod spec"


def rule(name: str) -> str:
    """The CEL rule that refuses the same."""
    return f"!('{name}' in self) || !self['{name}'].matches(r'{FORBIDDEN[name]}')"


def image_env(spec: Mapping[str, Any]) -> Mapping[str, str]:
    """The policy's imageEnv, variable to value. Raises SpecError for a name or a value that it may not have."""
    values = text_map(spec, "imageEnv", "spec")
    for name, value in values.items():
        if name not in NAMES:
            raise SpecError(f"spec.imageEnv.{name[:64]}", f"is not one of {', '.join(NAMES)}")
        if name in _PATTERNS and _PATTERNS[name].search(value):
            raise SpecError(f"spec.imageEnv.{name}", f"{_ALLOWED[name]}; else set {name} in the pod spec")
    return dict(values)
