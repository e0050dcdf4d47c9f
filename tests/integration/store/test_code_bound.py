"""Redis holds a bounded amount of code: that of the oldest ended sweeps goes first."""

from __future__ import annotations

from hpq.domain.sweep import Launch


def test_code_of_the_oldest_ended_sweeps_goes_once_there_is_too_much(
    sweep_of, writer, control, redis, keys, reader
) -> None:
    def begin(name: str) -> None:
        digest = name * 64
        redis.setrange(keys.bundle(digest), 100 * 2**20 - 1, b"x")
        redis.hset(keys.code, digest, "{}")
        launch = Launch(program="t.py", code=digest, bundled=True)
        sweep_of(1, sid=f"s-{name * 5}", launch=launch, bundle=digest)

    begin("a")
    begin("b")
    control.cancel("s-bbbbb")
    begin("c")
    assert redis.exists(keys.bundle("a" * 64), keys.bundle("c" * 64)) == 2  # unfinished
    assert not redis.exists(keys.bundle("b" * 64)) and not reader.sweeps.get("s-bbbbb").bundle
