"""A CUDA graph on a CPU: it records the operations of a capture and replays them on their memory.

As with a real one, a replay runs no Python: Python numbers keep their values of the capture, and
inputs change only through the captured memory. Reading a value back breaks a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpq_worker.trainers import step

Operation = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]


class Recorder(TorchDispatchMode):
    """Records each operation with operands and result; refuses to read a value back."""

    def __init__(self, note: bool = True) -> None:
        super().__init__()
        self.tape: list[Operation] = []
        self.note = note

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nSearch for it.")
        result = func(*args, **(kwargs or {}))
        if self.note:
            self.tape.append((func, args, kwargs or {}, result))
        return result


class Graph:
    """A replacement of `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.tape: list[Operation] = []
        self.replays = 0

    def replay(self) -> None:
        """Repeat each operation, and write the result into its captured memory."""
        self.replays += 1
        with torch.no_grad():
            for func, args, kwargs, result in self.tape:
                anew = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(anew), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Gpu:
    """The parts of `torch.cuda` that a capture uses; `graphs` are the captured ones."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stream = "default"
        self.graphs: list[Graph] = []
        for name in ("graph", "stream", "current_stream"):
            patch.setattr(torch.cuda, name, getattr(self, f"_{name}"))
        for name in ("get_rng_state", "set_rng_state"):
            patch.setattr(torch.cuda, name, getattr(torch, name))
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(step, "_side_stream", lambda: self)

    def wait_stream(self, other: object) -> None:
        """Do nothing: the CPU has no stream to wait for."""

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
            try:
                yield
            except Exception:  # as the end of a capture does
                raise RuntimeError("failed by a previous error in the capture")  # noqa: B904
        graph.tape = recorder.tape
        self.graphs.append(graph)
