"""What a capture that broke off leaves taken in torch, and how it is taken back.

Torch takes it back itself where a capture ends well, and in its newer versions some of it where it
does not (pytorch#180395, #190348). So each part is looked at, and taken back where it is left: its
memory would stay taken, and its generator refuse to draw for the next trial.
"""

from __future__ import annotations

import traceback
from contextlib import suppress

import torch

Pool = tuple[int, int]
# Torch's allocator of pinned memory goes on asking the graph whether it is being captured.
_asked: list[torch.cuda.CUDAGraph] = []


def clear_up(graph: torch.cuda.CUDAGraph, pool: Pool, error: BaseException) -> None:
    """Take back the memory and the generator of the graph whose capture ended with `error`.

    All steps captured before are of no use afterwards: their draws come from a state of the
    generator that nobody seeds any more.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)  # they hold tensors of the capture
        cause = cause.__context__
    place = torch.cuda.current_device()
    _asked.append(graph)
    with suppress(Exception):  # newer torch has ended it
        torch._C._cuda_endAllocateToPool(place, pool)
    with suppress(Exception):  # in newer torch it gives the pool back
        graph.reset()
    torch.cuda.empty_cache()
    if _is_kept_empty(pool):
        with suppress(Exception):
            torch._C._cuda_releasePool(place, pool)
        torch.cuda.empty_cache()
    generator = torch.cuda.default_generators[place]
    generator.graphsafe_set_state(torch.Generator(torch.device("cuda", place)))


def _is_kept_empty(pool: Pool) -> bool:
    """Whether memory is reserved for the pool, and none of it in use.

    To give a pool back twice would break the allocator. One in use cannot be told from one that
    was given back and is not empty yet; so that is left: a leak, at worst, of one step's memory.
    """
    segments = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == pool]
    return bool(segments) and not any(s["allocated_size"] for s in segments)
