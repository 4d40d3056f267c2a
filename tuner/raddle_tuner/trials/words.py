"""A pod spec's text in sh: what the kubelet would make of it, said so that a shell makes the same of it."""

from __future__ import annotations

import re
import shlex
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the kubelet replaces in variables, command and args: third_party/forked/golang/expansion of Kubernetes.
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^()$]+)\))")


def escaped(text: str) -> str:
    """The text as a pod spec writes it where no reference is meant."""
    return text.replace("$", "$$")


def word(text: str) -> str:
    """The text of a pod spec as one word of sh: `$(NAME)` is the container's variable, `$$` is a dollar.

    Where there is no such variable the text stays, as the kubelet leaves it.
    """
    made, at = "", 0
    for item in _REFERENCE.finditer(text):
        name = item[1]
        if name is None:
            put = "'$'"
        elif _NAME.fullmatch(name):
            put = f'"${{{name}-\\$({name})}}"'
        else:
            continue
        made += shlex.quote(text[at : item.start()]) + put
        at = item.end()
    return made + shlex.quote(text[at:])
