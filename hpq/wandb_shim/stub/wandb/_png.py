"""Arrays as PNG, without pillow."""

from __future__ import annotations

import importlib
import struct
import zlib
from typing import Any

_COLORS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's color type by the number of channels
_LEVEL = 3  # of zlib: three times as fast as the default


def png_of(data: Any, most: int) -> bytes:
    """Return an array of any library as a PNG of 8 bits, with W&B's rules of shapes.

    Rows, columns and 1 to 4 channels; the channels come first in a tensor of torch. Numbers between
    0 and 1 that are not integers become 0 to 255, and negative ones move the range up.

    Raises:
        TypeError: the object is no array, its shape is not a picture's, or it has more than `most`
            numbers.
    """
    if not hasattr(data, "shape"):
        raise TypeError(f"{type(data).__name__} is no picture")
    np = importlib.import_module("numpy")
    pixels, channels_first = data, hasattr(data, "detach")
    if channels_first:
        data = data.detach().cpu()
        pixels = data.float() if data.is_floating_point() else data
    pixels = np.asarray(pixels)
    pixels = pixels.squeeze() if pixels.ndim > 3 else pixels
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif pixels.ndim == 3 and (channels_first or _is_first(pixels.shape)):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim != 3 or pixels.shape[2] not in _COLORS:
        raise TypeError(f"an array of the shape {tuple(data.shape)} is no picture")
    if pixels.size > most:
        raise TypeError(f"it has more than {most >> 20} MiB as pixels; use wandb.save")
    height, width, channels = pixels.shape
    rows = np.ones((height, 1 + width * channels), np.uint8)  # each row begins with its filter
    rows[:, 1:] = _bytes(np, pixels).reshape(height, -1)
    rows[:, 1 + channels :] -= rows[:, 1:-channels].copy()  # filter 1: from the pixel to the left
    head = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), _LEVEL)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def _is_first(shape: tuple[int, ...]) -> bool:
    return shape[0] in _COLORS and shape[2] not in _COLORS


def _bytes(np: Any, pixels: Any) -> Any:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "fb":
        return pixels.clip(0, 255).astype(np.uint8)
    pixels = np.nan_to_num(pixels.astype(np.float32), posinf=255, neginf=0)
    low, high = pixels.min(initial=0), pixels.max(initial=0)
    if low < 0:
        pixels = (pixels - low) / (high - low)
    if low < 0 or high <= 1:
        pixels = pixels * 255
    return pixels.clip(0, 255).astype(np.uint8)
