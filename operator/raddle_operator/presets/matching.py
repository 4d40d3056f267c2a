"""Which preset a container is, by its image or command, and a policy with what that changes.

Only whole names count: repository/name of the image whatever its registry, or the name alone where a row says so, and
the program that is started. A word elsewhere in a command line is no proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from raddle.planning.policy import Policy
from raddle_operator.objects.accelerators import has_accelerator
from raddle_operator.objects.commands import programs, words
from raddle_operator.objects.pods import Container
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.presets.rows import Preset, presets

_MAX_IMAGE: Final = 1024


class _Index(NamedTuple):
    images: Mapping[str, tuple[int, ...]]
    commands: Mapping[str, tuple[int, ...]]


class Applied(NamedTuple):
    """A policy for one container: with its preset's variables and families, but for those that `kept` ones beat.

    These are flags of its command, and variables that mean the same.
    """

    policy: Policy
    kept: tuple[str, ...] = ()


def find(container: Container) -> Preset | None:
    """The first preset that the container is; None where it is none."""
    index = _index()
    repository = _repository(container.image)
    places = {*index.images.get(repository, ()), *index.images.get(repository.rpartition("/")[2], ())}
    for program in programs(container.arguments):
        places.update(index.commands.get(program, ()))
    if not places:
        return None
    rows, accelerated = presets(), has_accelerator(container)
    fitting = (rows[place] for place in sorted(places))
    return next((row for row in fitting if row.accelerator in (None, accelerated)), None)


def skipped_reason(preset: Preset, container: Container) -> str:
    """Why the container is left alone, with what to do instead; "" where it is not."""
    if not preset.alone:
        return ""
    entries = {name: container.effective(name) for name in preset.unless}
    if preset.unless and all(entry and entry.value == preset.unless[name] for name, entry in entries.items()):
        return ""
    advice = f"; {preset.advice}" if preset.advice else ""
    return f"{preset.title}: {preset.alone}{advice}"


def applied(preset: Preset, governing: PolicyObject, container: Container) -> Applied:
    """The policy as it is for this container: what the policy says itself counts before the preset."""
    policy = governing.policy
    own = dict(policy.variables)
    there = {word.partition("=")[0] for word in words(container.arguments)} if preset.beaten_by else set()
    if policy.existing_values != "Override":
        there |= container.env.keys()
    kept = {name: [one for one in others if one in there] for name, others in preset.beaten_by.items()}
    added = {name: value for name, value in preset.variables.items() if not kept.get(name)}
    changed = policy._replace(variables=tuple(sorted({**added, **own}.items())))
    if preset.runtimes and not governing.names_runtimes:
        changed = changed._replace(runtimes=preset.runtimes)
    return Applied(changed, tuple(item[0] for name, item in kept.items() if item and name not in own))


@cache
def _index() -> _Index:
    images: dict[str, tuple[int, ...]] = {}
    commands: dict[str, tuple[int, ...]] = {}
    for place, row in enumerate(presets()):
        for item, names in ((images, row.images), (commands, row.commands)):
            for name in names:
                item[name] = (*item.get(name, ()), place)
    return _Index(images, commands)


def _repository(image: str) -> str:
    """The last two parts of an image's name, or its one, without tag and digest; "" where it is too long."""
    if len(image) > _MAX_IMAGE:
        return ""
    *above, last = image.partition("@")[0].split("/")
    return "/".join((*above[-1:], last.partition(":")[0]))
