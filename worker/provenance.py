"""What an attempt ran on: versions, host, device. Kept once in Redis under its digest."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata

from hpq import __version__
from hpq.gpus import gpu_names
from hpq.settings import Settings
from hpq.wire import dumps


def record(settings: Settings, host: str, device: str) -> tuple[str, str]:
    """The digest and the JSON of what this worker's attempts run on."""
    packages = {d.name: d.version for d in metadata.distributions() if d.name}
    text = dumps(
        {
            "hpq": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "host": host,
            "image": settings.image,
            "device": device,
            "gpus": list(gpu_names()),
            "packages": packages,
        }
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16], text
