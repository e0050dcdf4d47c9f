"""Data sets in their published formats, with random contents."""

from __future__ import annotations

import gzip
import random
import struct


def mnist_files(images: int = 20) -> dict[str, bytes]:
    """Return the four files of MNIST."""
    noise, files = random.Random(0), {}
    for split in ("train", "t10k"):
        pixels = struct.pack(">3I", images, 28, 28) + noise.randbytes(images * 28 * 28)
        labels = struct.pack(">I", images) + bytes(i % 10 for i in range(images))
        files[f"{split}-images-idx3-ubyte.gz"] = gzip.compress(b"\0\0\x08\x03" + pixels)
        files[f"{split}-labels-idx1-ubyte.gz"] = gzip.compress(b"\0\0\x08\x01" + labels)
    return files
