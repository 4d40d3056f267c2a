"""GPUs and the like that a container asks for, by the names of extended resources that device plugins use."""

from __future__ import annotations

from typing import Final

from raddle_operator.objects.pods import Container

_ACCELERATORS: Final = (
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/",
    "habana.ai/gaudi",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-",
)


def has_accelerator(container: Container) -> bool:
    """Whether it asks for one, in its limits or requests; none of them is none."""
    asked = {**container.requests, **container.limits}
    names = (name for name, quantity in asked.items() if str(quantity) != "0")
    return any(name.endswith("/gpu") or name.startswith(_ACCELERATORS) for name in names)
