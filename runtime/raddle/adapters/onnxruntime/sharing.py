"""What all sessions of a process share: ONNX Runtime's global thread pools, and one arena.

Neither can be undone, so each is made once, at the first session that uses it, and only where it is certain to work.
An application that makes its own is let go first; one that comes later finds that the work is done.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable

from raddle import RLock, errors, log
from raddle.adapters.metadata import stand_in
from raddle.process.resolution import Effective

# onnxruntime.set_global_thread_pool_sizes: microsoft/onnxruntime#24238.
GLOBAL_POOL_SINCE = (1, 23)
_ALREADY = "already been registered"
BY_THE_APPLICATION = "the application has made its own"


class Sharing:
    """The process's global pools and shared arena; they outlive a fork as the runtime's own memory does.

    sizes    (intra, inter) of the global pools that were made for the plan, None: none were.
    resolve  the plan's values for the process as it is now.
    """

    def __init__(self, module: Any, resolve: Callable[[], Effective], *, override: bool) -> None:
        self.module = module
        self.resolve = resolve
        self.override = override
        # A signal handler that makes a session may come while it is held.
        self.lock = RLock()
        # The pools, or the arena, have been asked for: where they are said to be there already they are ours.
        self.asked_pools: tuple[int, int] | None = None
        self.asked_arena = False
        self.sizes: tuple[int, int] | None = None
        self.pool_problem: str | None = None
        self.arena_problem: str | None = None
        self.arena_made = False
        self.set_sizes: Callable[..., Any] | None = getattr(module, "set_global_thread_pool_sizes", None)
        self.register: Callable[..., Any] | None = getattr(module, "create_and_register_allocator", None)

    def replace(self, modules: Iterable[Any]) -> None:
        """Lets the application's own calls pass through here, in each module that offers them."""
        names: dict[str, Callable[[Any], Any]] = {
            # A method can't be given a name.
            "set_global_thread_pool_sizes": lambda _: (
                lambda *args, **kwargs: self.application_sets_sizes(*args, **kwargs)  # noqa: PLW0108
            ),
            "create_and_register_allocator": self._registering,
            "create_and_register_allocator_v2": self._registering,
        }
        originals = {name: getattr(self.module, name) for name in names if hasattr(self.module, name)}
        ours = {name: stand_in(names[name](original), original) for name, original in originals.items()}
        for module in modules:
            for name, original in originals.items():
                if getattr(module, name, None) is original:
                    setattr(module, name, ours[name])

    def forked(self) -> bool:
        """To be called in a child after fork; True where its global pools have lost their threads."""
        self.lock = RLock()
        return self.sizes is not None and self.sizes != (1, 1)

    def join_pool(self, wanted: Effective, *, own_counts: str) -> str:
        """Why a session keeps its own pools; "" when it is to use the global ones, made now if need be.

        own_counts  what sets a count for this session that wins over the plan's, "" where nothing does. Once the pools
                    are there ONNX Runtime's Python binding refuses every session with pools of its own: no count can
                    be kept then.
        """
        with self.lock:
            if self.sizes is not None:
                return ""
            if self.pool_problem is not None:
                return self.pool_problem
            if self.set_sizes is None:
                self.pool_problem = "onnxruntime supports it since {}.{}".format(*GLOBAL_POOL_SINCE)
                return self.pool_problem
            if own_counts:
                return own_counts
            intra, inter = wanted.global_intra_op, wanted.inter_op or 1
            if intra is None:
                return "no count is planned"
            if (intra, inter) != (1, 1) and wanted.spinning != "always":
                return "its spinning can't be stopped from Python"
            asked, self.asked_pools = self.asked_pools, (intra, inter)
            try:
                self.set_sizes(intra, inter)
            except Exception as error:
                errors.let_through(error)
                if asked is None:
                    self.asked_pools, self.pool_problem = None, str(error)
                    return self.pool_problem
                self.asked_pools = asked
            self.sizes = self.asked_pools
            return ""

    def join_arena(self) -> str:
        """Why a session has an arena of its own; "" when it is to use the shared one, made now if need be."""
        with self.lock:
            if self.arena_problem is None:
                self.arena_problem = self._make_arena()
            return self.arena_problem

    def _make_arena(self) -> str:
        if self.register is None:
            return "this onnxruntime can't"
        module = self.module
        asked, self.asked_arena = self.asked_arena, True
        try:
            arena = module.OrtAllocatorType.ORT_ARENA_ALLOCATOR
            memory = module.OrtMemoryInfo("Cpu", arena, 0, module.OrtMemType.DEFAULT)
            # No limit, and ORT's own defaults: extension, first chunk, dead bytes.
            self.register(memory, module.OrtArenaCfg(0, -1, -1, -1))
        except Exception as error:
            errors.let_through(error)
            if _ALREADY not in str(error):
                return str(error)
            if not asked:
                return BY_THE_APPLICATION
        self.arena_made = True
        return ""

    def application_sets_sizes(self, intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
        """Stands in for onnxruntime.set_global_thread_pool_sizes.

        A count that the application leaves open, and any under Override, is the plan's.
        """
        with self.lock:
            if self.sizes is not None:
                log.complain(
                    "onnxruntime.set_global_thread_pool_sizes({}, {}) comes too late: the process has global pools of "
                    "{} and {} threads by its plan".format(intra_op_num_threads, inter_op_num_threads, *self.sizes)
                )
                return
            wanted = self.resolve()
            asked = (
                (intra_op_num_threads, wanted.global_intra_op or wanted.intra_op),
                (inter_op_num_threads, wanted.inter_op),
            )
            counts = [planned if planned and (self.override or code <= 0) else code for code, planned in asked]
            assert self.set_sizes is not None
            self.set_sizes(*counts)
            self.pool_problem = BY_THE_APPLICATION

    def _registering(self, register: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in for onnxruntime.create_and_register_allocator, and for its newer form."""

        def application_registers(*args: Any, **kwargs: Any) -> Any:
            try:
                result = register(*args, **kwargs)
            except Exception as error:
                if not (self.arena_made and _ALREADY in str(error)):
                    raise
                # Older versions refuse a second arena for one device; that of the plan does its work.
                log.complain("onnxruntime.create_and_register_allocator comes too late: there is a shared arena")
                return None
            with self.lock:
                if not self.arena_made:
                    self.arena_problem = BY_THE_APPLICATION
            return result

        return application_registers
