"""The shim that this version of Raddle ships, as pods mount it, read from the package once."""

from __future__ import annotations

from functools import cache

from raddle import delivery
from raddle_operator.injection.volumes import ShimDelivery, config_map_name


@cache
def shim() -> ShimDelivery:
    """The delivery of this version's files. Raises OSError."""
    return ShimDelivery(
        config_map=config_map_name(delivery.content_hash()),
        items={name: delivery.items(name) for name in delivery.architectures()},
    )
