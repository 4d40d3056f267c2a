"""What holds for every ONNX Runtime session of a process: its plan, the environment's own counts, the version."""

from __future__ import annotations

from typing import Any, Mapping

from raddle import env
from raddle.keys import ENTRIES

# A version that can't be read is taken for this one: the oldest that the shim is tested with.
OLDEST = (1, 16)
ALLOW_SPINNING_SINCE = ENTRIES["session.intra_op.allow_spinning"]
SPIN_DURATION_SINCE = ENTRIES["session.intra_op.spin_duration_us"]
# session.intra_op_thread_affinities: microsoft/onnxruntime#13778.
AFFINITY_SINCE = (1, 14)


_MAX_DIGITS = 9


class RuntimeCapabilities:
    """What holds for every session of the process.

    fields   the plan (env.decode)
    module   onnxruntime.capi._pybind_state, for its enumerations
    version  (1, 31)
    entries  the plan's own config entries that this version knows
    unknown  why the plan's others are left out, "" where there are none
    sharing  sharing.Sharing; openmp: openmp.OpenMP. None where the plan, or the build, has no use for it
    """

    __slots__ = ("entries", "fields", "module", "openmp", "respect", "sharing", "unknown", "version")

    def __init__(self, fields: Mapping[str, Any], module: Any, version: tuple[int, ...]) -> None:
        self.fields = fields
        self.module = module
        self.version = version or OLDEST
        self.respect = fields.get("existing_values") != "override"
        self.entries: dict[str, str] = {}
        self.sharing: Any = None
        self.openmp: Any = None
        unknown = []
        for key in ENTRIES:
            if key in fields:
                if self.knows(key):
                    self.entries[key] = str(fields[key])
                else:
                    unknown.append("{}: onnxruntime supports it since {}.{}".format(key, *ENTRIES[key]))
        self.unknown = "; ".join(unknown)

    def own_counts(self, environ: Mapping[str, str]) -> dict[str, int]:
        """The counts that the environment has: intra, inter; {} where the policy overrides. None of them is Raddle's.

        They came with the image, envFrom, an entrypoint's export or the application's own code. ONNX Runtime from 1.29
        on reads them by itself at each session, and older ones are given them.
        """
        if not self.respect:
            return {}
        counts = {"intraOp": _count(environ.get(env.ORT_INTRA, "")), "interOp": _count(environ.get(env.ORT_INTER, ""))}
        return {key: count for key, count in counts.items() if count}

    def knows(self, key: str) -> bool:
        """Whether this version reads the config entry."""
        return self.version >= ENTRIES[key]


def _count(text: str) -> int:
    """The variable's count, 0 where it has none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
