"""Keeps a worker's secrets from the training code that runs as the same user.

The supervisor overwrites secret variables where /proc shows them, and sends them to its workers in
their configuration (config.py). Which variables a trial gets is in attempt/environment.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hpq import process_start as hpq_process
from hpq.redis import credentials
from hpq.settings import IN_POD, Settings
from hpq_worker.process.protocol import AttemptEnd

# In a pod, the variables that programs see besides passed ones; all others are secret there.
POD_ALLOWED = frozenset(
    "PATH HOME USER LOGNAME LANG LC_ALL TZ TMPDIR SHELL LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX "
    "PYTHONPATH CUDA_VISIBLE_DEVICES CUDA_HOME CUDA_CACHE_PATH CUDA_DEVICE_ORDER "
    "NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES OMP_NUM_THREADS XDG_CACHE_HOME TORCH_HOME "
    "TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR MPLCONFIGDIR HF_HOME SSL_CERT_FILE "
    "REQUESTS_CA_BUNDLE CUDA_MPS_PIPE_DIRECTORY PYTORCH_CUDA_ALLOC_CONF HPQ_DATA HPQ_IMAGE "
    "HPQ_TRIALS_PER_GPU".split()
)
_SECRET_WORDS = frozenset(
    "KEY APIKEY TOKEN SECRET PASSWORD PASSWD PASSPHRASE CREDENTIAL CREDENTIALS".split()
)
_SHORTEST = 6  # bytes; masking less would eat ordinary words


def in_pods(name: str) -> bool:
    """True for a variable that programs see in a pod without `pass_env`."""
    return name in POD_ALLOWED or name.startswith("NCCL_")


def hide(in_pod: bool) -> dict[str, str]:
    """Remove secret variables from this process's environment; return them."""
    ours = hpq_process.ours(os.environ)
    # The worker reads IN_POD itself.
    names = [n for n in os.environ if n in ours or (in_pod and n != IN_POD and not in_pods(n))]
    hidden = {name: os.environ[name] for name in names}
    hpq_process.overwrite(names)
    for name in names:
        del os.environ[name]
    return hidden


def secret_values(settings: Settings, environ: Mapping[str, str], key: bytes | None) -> list[bytes]:
    """Return what no log may show: passwords, code key, variables named like secrets."""
    found = [credentials.of(settings.redis_url), settings.code_key, (key or b"").decode("latin-1")]
    found += [settings.notify, *credentials.carried(settings.store)]
    for name, value in environ.items():
        is_path = value.startswith("/") and Path(value).exists()
        if _SECRET_WORDS & set(re.split(r"[^A-Z]+", name.upper())) and not is_path:
            found.append(value)
    return [text.encode("utf-8", "surrogateescape") for text in dict.fromkeys(found) if text]


class Mask:
    """Hides values in a stream of bytes, also where one is split over two pieces."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._rest = b""  # what may be the beginning of a secret

    def feed(self, data: bytes) -> bytes:
        """Return masked bytes; keeps what may be the beginning of a secret."""
        data = self._rest + data
        keep = len(data) - self._partial_match(data)
        for found in self._pattern.finditer(data):
            if found.start() < keep < found.end():
                keep = found.start()
        self._rest = data[keep:]
        return self._pattern.sub(b"***", data[:keep])

    def flush(self) -> bytes:
        """Return the bytes that `feed` has kept, masked."""
        data = self._rest
        self._rest = b""
        return self._pattern.sub(b"***", data)

    def text(self, text: str) -> str:
        """Mask one text."""
        # Training code may send any text, also halves of surrogate pairs.
        data = text.encode("utf-8", "surrogatepass")
        hidden = self._pattern.sub(b"***", data)
        return text if hidden == data else hidden.decode("utf-8", "replace")

    def _partial_match(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            for size in range(min(len(secret) - 1, len(data)), longest, -1):
                if data.endswith(secret[:size]):
                    longest = size
                    break
        return longest


def masked(end: AttemptEnd, mask: Mask) -> AttemptEnd:
    """Return the end of an attempt with texts that show no secret."""
    failure = end.failure
    if failure is None:
        return end
    message = mask.text(failure.message)
    fingerprint = mask.text(failure.fingerprint)
    return replace(end, failure=replace(failure, message=message, fingerprint=fingerprint))
