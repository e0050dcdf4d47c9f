"""A CUDA graph on a CPU: it records the operations of a capture and replays them on their memory.

As with a real one, a replay runs no Python: numbers that were Python's are those of the capture,
and what is to change has to lie in the memory that was there. Reading a value back ends a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpq_worker.trainers.training import step

Operation = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]


class Recorder(TorchDispatchMode):
    """Notes each operation with its operands and its result."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nSearch for it.")
        result = func(*args, **(kwargs or {}))
        self.tape.append((func, args, kwargs or {}, result))
        return result


class Graph:
    """What `torch.cuda.CUDAGraph` is to a step."""

    def __init__(self) -> None:
        self.tape: list[Operation] = []

    def replay(self) -> None:
        """Each operation again, with its result where it was."""
        with torch.no_grad():
            for func, args, kwargs, result in self.tape:
                anew = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(anew), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Gpu:
    """The parts of `torch.cuda` that a capture uses, and what it left behind."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stream, self.ended, self.graphs = "default", [], 0
        self._patch = patch
        for name in (
            "graph", "stream", "current_stream", "get_rng_state", "set_rng_state",
        ):  # fmt: skip
            patch.setattr(torch.cuda, name, getattr(self, f"_{name}", getattr(torch, name, None)))
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        patch.setattr(step, "clear_up", lambda graph, pool, error: self.ended.append(pool))
        patch.setattr(step, "_side_stream", lambda: self)
        gpu = self

        class Captured(step.Static):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.capture()
                gpu.graphs += self.is_captured

        patch.setattr(step, "Static", Captured)

    def wait_stream(self, other: object) -> None:
        """There is nothing to wait for."""

    def _current_stream(self) -> Gpu:
        return self

    @contextmanager
    def _stream(self, stream: Gpu) -> Iterator[None]:
        self.stream = "side"
        try:
            yield
        finally:
            self.stream = "default"

    @contextmanager
    def _graph(self, graph: Graph, **how: object) -> Iterator[None]:
        assert self.stream == "side" and how["capture_error_mode"] == "thread_local"
        with Recorder() as recorder:
            yield
        graph.tape = recorder.tape
