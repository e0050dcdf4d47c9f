"""What a command says of replicas, of Sentinels, and of a server whose data is older."""

from __future__ import annotations

import pytest

from hpq_producer.invitation import Invitation
from tests.support.ids import ids, refused

SENTINEL = "redis+sentinel://user@one:26379,two/primary/0"


def test_a_change_that_no_replica_has_is_reported_once_and_counted(
    sweep_of, hpq, redis, keys
) -> None:
    sid, waits = sweep_of(2).id, {"HPQ_WAIT_REPLICAS": "1"}
    done = hpq("cancel", f"{sid}/1", f"{sid}/2", "--yes", **waits)
    assert done.returncode == 0 and ids(done.stderr).count("replicas-behind") == 1
    assert int(redis.hget(keys.counters, "replica_misses")) >= 1
    assert "replicas-behind" not in ids(hpq("resume", sid).stderr)


def test_a_primary_without_its_replicas_refuses_a_command(sweep_of, hpq, redis) -> None:
    sid = sweep_of(1).id
    redis.config_set("min-replicas-to-write", 1)
    try:
        refused(hpq("pause", sid), "replicas-behind", "start a replica", exit=3)
    finally:
        redis.config_set("min-replicas-to-write", 0)


def test_a_server_without_the_last_change_is_reported_once(sweep_of, hpq, redis) -> None:
    sid = sweep_of(1).id
    assert hpq("pause", sid).returncode == 0
    redis.flushall()
    done = hpq("ls")
    assert "server-went-back" in ids(done.stderr) and f"{sid} is gone" in done.stderr
    again = hpq("ls")
    assert "server-went-back" not in ids(again.stderr) and "became older" in again.stderr


def test_a_change_that_was_lost_is_in_the_audit(sweep_of, hpq, redis, keys) -> None:
    sid = sweep_of(1).id
    hpq("pause", sid)
    (last,) = redis.xrevrange(keys.sweep(sid, "events"), count=1)
    redis.xdel(keys.sweep(sid, "events"), last[0])
    assert "server-went-back" in ids(hpq("ls").stderr)
    assert '"went_back": {' in hpq("audit", sid, "--json").stdout


def test_a_sweep_that_was_removed_is_not_missed(sweep_of, hpq) -> None:
    sid = sweep_of(1).id
    hpq("pause", sid)
    assert hpq("rm", sid, "--yes").returncode == 0
    assert "server-went-back" not in ids(hpq("ls").stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["connect"], "sentinel-unsupported"),
        (["redis-acl", "--rotate"], "sentinel-unsupported"),
        (["manifests", "--with", "keda=2", "--set", f"HPQ_REDIS_URL={SENTINEL}"],
         "sentinel-unsupported"),
    ],
)  # fmt: skip
def test_what_cannot_follow_sentinels_is_refused(hpq, words: list[str], code: str) -> None:
    refused(hpq(*words, HPQ_REDIS_URL=SENTINEL), code)


@pytest.mark.parametrize(
    "url", ["redis+sentinel://one:26379", "redis+sentinel://one/p/x", "rediss+sentinel://one/p/0"]
)
def test_a_url_of_sentinels_names_hosts_and_the_primary(hpq, url: str) -> None:
    refused(hpq("ls", HPQ_REDIS_URL=url), "setting-invalid", "redis+sentinel://HOST:26379")


def test_sentinels_that_do_not_answer_are_out_of_reach(hpq) -> None:
    url = "redis+sentinel://me:secret@127.0.0.1:1,127.0.0.1:2/primary/0"
    done = hpq("ls", HPQ_REDIS_URL=url)
    refused(done, "redis-unreachable", "'primary'; start it", exit=3)
    assert "secret" not in done.stderr


def test_an_invitation_has_the_sentinels_and_the_number_of_replicas(hpq, tmp_path) -> None:
    hpq("invite", "--file", tmp_path / "token", HPQ_WAIT_REPLICAS="2")
    assert Invitation.decode((tmp_path / "token").read_text()).settings["HPQ_WAIT_REPLICAS"] == "2"
    made = Invitation.of(SENTINEL.replace("user", "user:secret"), "key", {}, {})
    assert (made.url, made.files["password"]) == (SENTINEL, "secret")
