"""Any client may have written a text in Redis: no command lets it act on the terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.access.session import Server
from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import Launch, Metric
from hpq.domain.trial import Claim, Failure, FailureKind, Point, TrialState
from hpq.reporting import MAX_NAMES
from hpq.sanitize import CONTROL, PAGE_OF_ERRORS, GuardedStream
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq_views.why.able_workers import how_to_start
from tests.support.desk import drawn_here
from tests.support.ids import refused
from tests.support.terminal import Pty

SID = "demo-00000"
FRAME = "\x1b[H"  # begins a frame of the live page
LINK = re.compile(rf"\x1b\]8;;{re.escape(PAGE_OF_ERRORS)}#([a-z0-9-]+)\x1b\\(\1)\x1b\]8;;\x1b\\")
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b31m\rok\x08\x08\u202edne\x7f\u2028"
COMMANDS = (
    ["ls", "--json"], ["show"], ["show", f"{SID}/1"],
    ["show", "--provenance"], ["show", "--json"], ["show", "-o", "yaml"], ["show", "-o", "csv"],
    ["logs", f"{SID}/1"], ["summary"], ["best"],
    ["diff"], ["diff", f"{SID}/1", f"{SID}/2"],
    ["best", "--yaml"], ["best", "--args"],
    ["results"], ["results", "--csv"], ["results", "--json"], ["results", "-o", "yaml"],
    ["workers"], ["workers", "--json"], ["watch", "--once"], ["audit"],
    ["doctor"], ["wait"], ["get", f"{SID}/1"], ["set", SID, "priority=1"],
    ["archive", SID, "/nowhere/x"], ["pause", EVIL.split("\r")[0]],
    ["cancel", SID], ["retry", SID], ["rm", SID], [], ["ls"],
)  # fmt: skip


def evil(value: object) -> object:
    """Return data with every text in it tainted."""
    if isinstance(value, dict):
        return {f"{key}{EVIL}": evil(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [evil(one) for one in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


def in_a_process(words: list[str], cwd: Path, environ: dict[str, str]) -> str:
    """Run hpq on a pseudo-terminal; return what reached it."""
    shown = Pty(words, cwd, {**environ, "TERM": "xterm-256color"})
    shown.end()
    return shown.seen


@pytest.fixture
def tainted(
    redis: Redis, sweep_of, store: TrialStore, who: WorkerPresence, keys: Keys, tmp_path: Path
) -> None:
    sweep_of(
        3, SID, name=f"demo{EVIL}", owner="me", tags=(EVIL,), queue="default",
        metric=Metric(name=f"loss{EVIL}"), varying=("x", f"y{EVIL}"), signature=EVIL, signer=EVIL,
        launch=Launch(program=f"train.py{EVIL}", command=("python", f"-x{EVIL}"), code=EVIL),
        spec={"parameters": {f"x{EVIL}": {"values": [EVIL]}}, EVIL: EVIL},
        provenance={"host": EVIL, "git": {"branch": EVIL, "commit": EVIL}, EVIL: EVIL},
    )  # fmt: skip
    for number in range(1, 4):
        redis.hset(keys.sweep(SID, "params"), str(number), json.dumps({"x": number, EVIL: EVIL}))
    store.keep_provenance(
        "d", json.dumps(evil({"host": "h", "gpus": ["a"], "packages": {"t": "1"}}))
    )
    fields = {name: EVIL for name in ("device", "version", "pod", "fault", "state", "key", "trial")}
    fields |= {"refuses": json.dumps({SID: {"code": "worker-fault", "text": EVIL}}), "pid": "1"}
    worker = WorkerPresence(name="w1", host=f"h{EVIL}", queue="default", fields=fields)
    store.present(worker, idle=False, lifetime_ms=600_000)
    claims = [store.claim(who, nonce=n, lease_ms=600_000, provenance="d") for n in "ab"]
    assert all(isinstance(claim, Claim) for claim in claims)
    failure = Failure(kind=FailureKind.USER_ERROR, message=EVIL, fingerprint=EVIL)
    store.commit(claims[0], Outcome(state=TrialState.FAILED, failure=failure))
    first = keys.trial(claims[0].trial)
    redis.hset(
        first,
        mapping={"phase": EVIL, "worker": EVIL, "host": EVIL, "restarted": EVIL},
    )
    redis.hset(first, mapping={f"m:loss{EVIL}": "1.5", f"m:{EVIL}": "2", "objective": "1.5"})
    redis.zadd(keys.sweep(SID, "rank"), {"1": 1.5})
    redis.xadd(f"{first}:log", {"d": EVIL.encode() + b"\n" + EVIL.encode("latin-1", "ignore")})
    redis.xadd(keys.sweep(SID, "events"), {"e": "held", "n": 0, "a": 0, "why": EVIL})
    redis.hset(keys.sweep(SID), mapping={"state": "held", "why": f"alike {EVIL}"})
    forged = (f"evil{EVIL}-00000", "../evil-00000")
    for name in forged:
        redis.copy(keys.sweep(SID), keys.sweep(name))
        redis.zadd(keys.sweeps, {name: 9e12})
    redis.zadd(keys.workers, {f"w{EVIL}": 9e12, b"\xff": 9e12})
    redis.hset(keys.worker(f"w{EVIL}"), mapping=fields)


def test_on_a_terminal_the_id_of_an_error_links_to_its_explanation(
    hpq, environ: dict[str, str], tmp_path: Path
) -> None:
    words = ["show", "nosuch"]
    assert [found[0] for found in LINK.findall(drawn_here(words, tmp_path, environ))] == [
        "sweep-not-found"
    ]
    assert PAGE_OF_ERRORS.endswith("/docs/reference/errors.md")
    plain = hpq(*words).stderr
    for text in (plain, drawn_here(words, tmp_path, {**environ, "NO_COLOR": "1"})):
        assert "[sweep-not-found]" in text and "\x1b" not in text


def test_a_text_of_the_server_cannot_link_elsewhere() -> None:
    text = "\x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\"
    stream = GuardedStream(drawn := io.StringIO())
    stream.write(text)
    assert "\x1b]8;;h" not in drawn.getvalue()


@pytest.mark.parametrize("draw", [drawn_here, in_a_process])
def test_no_control_character_of_a_tainted_server_reaches_a_terminal(
    tainted: None, environ: dict[str, str], tmp_path: Path, draw: Callable[..., str]
) -> None:
    for words in COMMANDS if draw is drawn_here else COMMANDS[-1:]:
        check_drawn(draw(words, tmp_path, environ), words)


def check_drawn(drawn: str, words: list[str]) -> None:
    colors = re.compile(r"\x1b\[(?:[0-47]|[39][0-7]|4[0-7])?(?:;(?:[0-47]|[39][0-7]|4[0-7]))*m")
    plain = re.sub(r"\r*\n|\t", "", colors.sub("", LINK.sub(r"\2", drawn)))
    if found := CONTROL.search(plain):
        pytest.fail(f"{words}: {plain[max(0, found.start() - 80) :][:200]!r}")
    assert "Traceback" not in drawn and drawn.strip(), words


def test_the_lines_of_watch_in_a_pipe_have_no_control_character_of_a_tainted_server(
    tainted: None, redis: Redis, hpq
) -> None:
    redis.delete("hpq:s:demo-00000:waiting", "hpq:s:demo-00000:running")
    lines = hpq("watch", SID).stdout
    assert not CONTROL.search(lines.replace("\n", "")) and "dne" in lines


def test_the_live_page_draws_no_control_character_of_a_tainted_server(
    tainted: None, redis: Redis, environ: dict[str, str], tmp_path: Path
) -> None:
    redis.delete("hpq:s:demo-00000:waiting", "hpq:s:demo-00000:running")
    shown = Pty(["watch", SID], tmp_path, {**environ, "TERM": "xterm-256color"})
    shown.read_until(FRAME)
    shown.type("q")
    assert shown.end() == 0
    drawn = shown.seen
    for part in ("\x1b]", "\x07", "\x1b[8m", "\x9b", "\u202e", "\u2028", "\x08", "\x7f"):
        assert part not in drawn, part


SWEEP, TRIAL = f"hpq:s:{SID}", f"hpq:t:{SID}/1"
# What is damaged, what with, and what meets it.
DAMAGED = (
    (TRIAL, "event_ids", f"{EVIL}", ["show", f"{SID}/1"]),
    (f"{SWEEP}:ended", "", "", ["report", "--out", "x.html"]),
    (f"{SWEEP}:ended", "member", EVIL, ["report", "--out", "x.html"]),
    (f"{SWEEP}:running", "", "", ["ls"]),
    (f"{SWEEP}:params", "", "", ["show", f"{SID}/1"]),
    (f"{SWEEP}:events", "", "", ["wait"]),
    (f"{SWEEP}:rank", "member", EVIL, ["best"]),
    (f"{TRIAL}:p:loss", "", "", ["results", "--history"]),
    (f"{TRIAL}:p:loss", "entry", EVIL, ["results", "--history"]),
    (f"{TRIAL}:points", "", "", ["results", "--history"]),
    (f"{TRIAL}:points", "loss", EVIL, ["results", "--history"]),
    (f"{TRIAL}:log", "", "", ["logs", f"{SID}/1"]),
)


@pytest.mark.parametrize(
    ("key", "part", "text", "words"), DAMAGED, ids=lambda v: str(v).replace(EVIL, "evil")
)
def test_damaged_data_is_named_with_its_key(
    sweep_of, store: TrialStore, who: WorkerPresence, redis: Redis, hpq, key: str, part: str,
    text: str, words: list[str],
) -> None:  # fmt: skip
    sweep_of(2, SID, owner="me", metric=Metric(name="loss"))
    claim = store.claim(who, nonce="a", lease_ms=600_000)
    assert isinstance(claim, Claim)
    point = Point(step=1, name="loss", value=1.0)
    store.beat(claim, who, ReportBatch(seq=1, step=1, points=(point,), log=b"x"), lease_ms=600_000)
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0, step=1))
    if part in ("event_ids", "loss"):
        redis.hset(key, part, text)
    elif part == "member":
        redis.zadd(key, {text: -1.0 if key.endswith("rank") else 9e12})
    elif part == "entry":
        redis.xadd(key, {"s": text, "v": text})
    else:
        redis.delete(key)
        redis.set(key, "x")
    done = hpq(*words)
    if words == ["ls"]:  # the other sweeps are listed
        assert done.returncode == 0 and key in done.stderr + done.stdout
    else:
        refused(done, "value-unreadable", key, exit=3)
    assert not CONTROL.search((done.stdout + done.stderr).replace("\n", ""))


def test_a_trial_shows_as_many_metrics_as_it_may_report_and_counts_the_rest(
    sweep_of, store: TrialStore, who: WorkerPresence, redis: Redis, hpq
) -> None:
    sweep_of(1, SID, owner="me", metric=Metric(name="zz"))
    claim = store.claim(who, nonce="a", lease_ms=600_000)
    assert isinstance(claim, Claim)
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0, step=1))
    redis.hset(TRIAL, mapping={"m:zz": "1", **{f"m:x{i}": "2" for i in range(5_000)}})
    before = redis.info("stats")["total_commands_processed"]
    shown = hpq("show", f"{SID}/1").stdout
    assert redis.info("stats")["total_commands_processed"] - before < 1_000
    assert "zz" in shown and "4,701 more" in shown
    assert len(re.findall(r"(?m)^  x\d", shown)) == MAX_NAMES - 1 == 299


def test_a_script_that_meets_damaged_data_says_so(sweep_of, redis: Redis, hpq) -> None:
    sweep_of(2, SID, owner="me")
    redis.delete(f"{SWEEP}:events")
    redis.set(f"{SWEEP}:events", "x")
    refused(hpq("pause", SID), "value-unreadable", "hpq audit", exit=3)


def test_a_command_to_copy_is_quoted_whatever_redis_names(store: TrialStore, hpq) -> None:
    evil = "x; touch y"
    quoted = f"'{evil}'"
    pod = WorkerPresence(name="w1", host="h", queue="default", fields={"pod": evil})
    store.present(pod, idle=True, lifetime_ms=600_000)
    assert f"annotate pod {quoted} " in hpq("drain", "w1", HPQ_LEASE_S="600").stderr
    for server in (Server.CLUSTER, Server.SHARED, Server.SLURM):
        start = how_to_start(server, evil)
        assert quoted in start or f"'deployment/hpq-worker-{evil}'" in start, start


def test_a_long_text_is_cut_in_every_view(sweep_of, redis: Redis, hpq) -> None:
    sweep_of(1, SID, owner="me")
    held = {"state": "held", "why": "alike " + "h" * 2**21}
    redis.hset(SWEEP, mapping={"name": "n" * 2**21, "owner": "o" * 2**21, **held})
    redis.hset(SWEEP, "tags", json.dumps(["t" * 2**21]))
    views = (["ls"], ["ls", "--json"], ["show"], ["show", "--json"], ["watch", "--once"])
    for words in views:
        done = hpq(*words)
        assert done.returncode == 0 and len(done.stdout + done.stderr) < 20_000, words


def test_a_guarded_stream_keeps_colors_and_lines_and_escapes_the_rest(capsys) -> None:
    stream = GuardedStream(sys.stdout)
    stream.write("\x1b[1;31mred\x1b[0m\tnext\r\n\x1b[8mhidden\x1b[2Jgone\rover\x1b]0;t\x07")
    kept = "\x1b[1;31mred\x1b[0m\tnext\r\n"
    assert capsys.readouterr().out == f"{kept}\\x1b[8mhidden\\x1b[2Jgone\\rover\\x1b]0;t\\x07"
    assert stream.encoding == sys.stdout.encoding
