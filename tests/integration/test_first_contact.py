"""A server that cannot be used: one line soon, and the same exit code whoever meets it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable

from redis import Redis

Hpq = Callable[..., subprocess.CompletedProcess[str]]


def test_tls_to_a_port_without_it_asks_about_that_and_soon_gives_up(hpq: Hpq) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # says as little to TLS as Redis does
        url = f"rediss://127.0.0.1:{mute.getsockname()[1]}/0"
        answer = hpq("ls", HPQ_REDIS_URL=url)
        assert (answer.returncode, len(answer.stderr.splitlines())) == (3, 1)
        assert "does this port speak TLS? (redis:// is without)" in answer.stderr
        tries = 0
        mute.settimeout(0.1)
        try:
            while True:
                mute.accept()[0].close()
                tries += 1
        except TimeoutError:
            pass
        assert tries == 1  # each takes its whole timeout


def test_a_wrong_password_has_one_exit_code(hpq: Hpq, redis: Redis, redis_url: str) -> None:
    redis.config_set("requirepass", "right")
    try:
        for command in ("ls", "doctor"):
            assert hpq(command, HPQ_REDIS_URL=f"{redis_url}?password=wrong").returncode == 4
            assert hpq(command, HPQ_REDIS_URL="redis://127.0.0.1:1/0").returncode == 3
    finally:
        redis.config_set("requirepass", "")


def test_doctor_says_which_gpus_there_are(hpq: Hpq, redis: Redis) -> None:
    assert "GPU" in hpq("doctor").stdout
