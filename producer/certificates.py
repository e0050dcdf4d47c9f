"""A certificate for a cluster's Redis, made by openssl: its own authority, for its own names."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpq.errors import UserError

_DAYS = 3650


def for_redis(namespace: str) -> Mapping[str, str]:
    """The files of the Secret hpq-redis-tls: tls.crt, tls.key and ca.crt, for ten years.

    Also for localhost, which is what Redis is called at the end of a port-forward.

    Raises:
        UserError: there is no openssl, or it refuses.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        raise UserError(
            "openssl is not on PATH; it makes the certificate of --with tls", code="program-missing"
        )
    names = ["hpq-redis", f"hpq-redis.{namespace}", f"hpq-redis.{namespace}.svc", "localhost"]
    also = ",".join([*(f"DNS:{name}" for name in names), "IP:127.0.0.1"])
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder, "tls.key"), Path(folder, "tls.crt")
        done = subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(_DAYS)),
                *("-subj", "/CN=hpq-redis", "-addext", f"subjectAltName={also}"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UserError(
                f"openssl req: {done.stderr.strip().splitlines()[-1]}", code="openssl-failed"
            )
        text = certificate.read_text("ascii")
        return {"tls.crt": text, "tls.key": key.read_text("ascii"), "ca.crt": text}
