"""GPUs and the like that a container asks for, by the names of extended resources that device plugins use."""

from __future__ import annotations

from typing import Any, Final

from raddle_operator.objects.pods import Container

_ACCELERATORS: Final = (
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/",
    "habana.ai/gaudi",
    "nvidia.com/mig-",
)


def accelerators(container: Container) -> int:
    """How many it asks for, 0 for none; one of each kind whose number can't be read."""
    kinds = {**container.requests, **container.limits}
    return sum(
        _count(value) for name, value in kinds.items() if name.endswith("/gpu") or name.startswith(_ACCELERATORS)
    )


def _count(quantity: Any) -> int:
    text = str(quantity)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) else 1
