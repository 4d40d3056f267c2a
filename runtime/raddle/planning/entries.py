"""ONNX Runtime's session configuration entries and provider options that a policy may set: one row each.

None names a file or a library. Names, bounds and versions are those of onnxruntime_session_options_config_keys.h and of
the providers' own options; spin durations and backoff: microsoft/onnxruntime#27916, #28096.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple, Union

from raddle import env

# (lowest, highest), or the words.
Allowed = Union[Tuple[int, int], Tuple[str, ...]]

SWITCH = (0, 1)
_MOST_GPU_BYTES = 10**19 - 1


class Entry(NamedTuple):
    """One entry or option: what its value may be.

    since         the version that brought it; (): it is older than any ONNX Runtime that the shim meets.
    acknowledge   it changes results or needs the application's help: a policy has to name it twice.
    """

    allowed: Allowed = SWITCH
    since: Tuple[int, ...] = ()
    acknowledge: bool = False


class Provider(NamedTuple):
    """One execution provider: what its options begin with in the plan, and the options."""

    prefix: str
    options: Dict[str, Entry]


CONFIG_ENTRIES: Dict[str, Entry] = {
    "session.intra_op.allow_spinning": Entry(since=(1, 8)),
    "session.inter_op.allow_spinning": Entry(since=(1, 8)),
    "session.intra_op.spin_duration_us": Entry((-1, 9999999), since=(1, 26)),
    "session.inter_op.spin_duration_us": Entry((-1, 9999999), since=(1, 26)),
    "session.intra_op.spin_backoff_max": Entry((1, 64), since=(1, 26)),
    "session.inter_op.spin_backoff_max": Entry((1, 64), since=(1, 26)),
    "session.force_spinning_stop": Entry(since=(1, 12)),
    "session.dynamic_block_base": Entry((1, 9999), since=(1, 11)),
    "session.set_denormal_as_zero": Entry(acknowledge=True),
    "session.use_env_allocators": Entry(),
    "session.use_device_allocator_for_initializers": Entry(since=(1, 8)),
    "session.disable_prepacking": Entry(),
}

PROVIDERS: Dict[str, Provider] = {
    "CUDAExecutionProvider": Provider(
        "cuda.",
        {
            "arena_extend_strategy": Entry(("kNextPowerOfTwo", "kSameAsRequested")),
            "cudnn_conv_algo_search": Entry(("EXHAUSTIVE", "HEURISTIC", "DEFAULT")),
            "cudnn_conv_use_max_workspace": Entry(),
            "cudnn_conv1d_pad_to_nc1d": Entry(),
            "do_copy_in_default_stream": Entry(),
            "enable_cuda_graph": Entry(acknowledge=True),
            "use_tf32": Entry(acknowledge=True),
            "fuse_conv_bias": Entry(),
            "gpu_mem_limit": Entry((0, _MOST_GPU_BYTES)),
            "prefer_nhwc": Entry(),
            "sdpa_kernel": Entry((0, 65535)),
            "use_ep_level_unified_stream": Entry(),
        },
    ),
    "OpenVINOExecutionProvider": Provider(
        "openvino.",
        {"num_of_threads": Entry((0, env.MAX_THREADS)), "num_streams": Entry((0, env.MAX_THREADS))},
    ),
    "XnnpackExecutionProvider": Provider("xnnpack.", {"intra_op_num_threads": Entry((0, env.MAX_THREADS))}),
}

_ALL = [*(options for _, options in PROVIDERS.values()), CONFIG_ENTRIES]
# Those that a policy has to name twice.
ACKNOWLEDGED = tuple(name for table in _ALL for name, entry in table.items() if entry.acknowledge)
# Key in the plan -> entry or option, in the order of the plan.
PLAN_KEYS: Dict[str, Entry] = {
    **CONFIG_ENTRIES,
    **{prefix + name: entry for prefix, options in PROVIDERS.values() for name, entry in options.items()},
}


def listed(table: Dict[str, Entry]) -> str:
    """The names, for people."""
    names = (name + " (to be acknowledged)" if entry.acknowledge else name for name, entry in table.items())
    return ", ".join(names)
