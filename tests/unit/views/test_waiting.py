"""Why nobody takes a sweep, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hpq.access.connection_record import KUBECTL
from hpq.access.session import Server
from hpq.domain.owner import Owner
from hpq.domain.status import DurationStats, ServerMemory, SweepStatus, Worker
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import FUNCTION, Counts, Launch, SweepView
from hpq.notice import Notice
from hpq_views.why import pods
from hpq_views.why.able_workers import explain_no_worker
from hpq_views.why.waiting import explain_waiting, why_no_trial_starts
from tests.support.golden import Golden


def _sweep(
    launch: Launch, queue: str = "default", signature: str = "", signer: str = ""
) -> SweepView:
    return SweepView(
        id="s-00000",
        name="s",
        digest="d",
        launch=launch,
        queue=queue,
        signature=signature,
        signer=signer,
    )


def _worker(**fields: object) -> Worker:
    base: dict[str, object] = {"name": "w1", "queue": "default", "takes": ("digits",)}
    return Worker(**{**base, **fields})  # type: ignore[arg-type]


def _code(notice: Notice | None) -> str | None:
    return notice and notice.code


def _at(server: Server) -> Any:
    """Return what is asked of a session at a server; its pods are not readable."""
    return SimpleNamespace(server=server, is_private=False, kubectl=KUBECTL, connection=None)


DIGITS, PROGRAM = Launch(trainer="digits"), Launch(program="train.py")


def test_a_foreign_key_with_a_connection_is_mended_on_the_laptop_by_the_clusters_key(
    golden: Golden,
) -> None:
    sweep = replace(_sweep(DIGITS), launch=Launch(program="t.py"), signature="s", signer="aaaa")
    why = explain_no_worker(sweep, [_worker(key="bbbb")], _at(Server.CLUSTER))
    assert why and why.code == "code-key-differs"
    golden.check("waiting", "the code key of a cluster", why.text)


def test_workers_of_a_cluster_that_run_another_sweep_are_scaled_and_not_started_here(
    golden: Golden,
) -> None:
    for queue in ("default", "big"):
        pinned = [_worker(queue=queue, only="other-11111")]
        why = explain_no_worker(_sweep(DIGITS, queue), pinned, _at(Server.CLUSTER))
        assert why and why.code == "workers-pinned"
        golden.check("waiting", f"one pinned worker of queue {queue} in a cluster", why.text)


def test_no_worker_of_the_queue_names_the_command_that_starts_one(golden: Golden) -> None:
    for queue, workers in (("small", [_worker()]), ("default", [])):
        why = explain_no_worker(_sweep(DIGITS, queue), workers)
        assert why and why.code == "no-worker"
        golden.check("waiting", f"no worker of queue {queue}", why.text)


def test_the_remedy_is_the_same_on_the_private_server(
    golden: Golden,
) -> None:
    for what, workers in (
        ("no worker", []),
        ("one worker", [_worker(only="demo-r24tt")]),
        ("two workers", [_worker(only="demo-r24tt"), _worker(name="w2", only="demo-r24tt")]),
    ):
        why = explain_no_worker(_sweep(DIGITS), workers, _at(Server.PRIVATE))
        assert why == explain_no_worker(_sweep(DIGITS), workers)
        assert why and "hpq run s-00000" in why.text and "HPQ_SWEEP" not in why.text
        golden.check("waiting", f"{what} for it on the private server", why.text)


@pytest.mark.parametrize("server", Server)
def test_only_its_script_runs_the_trials_of_a_function(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "why_no_pod_runs", lambda *_: [Notice("no-deployment", "no pods")])
    session = _at(server)
    session.connection = object() if server is Server.CLUSTER else None
    why = explain_no_worker(_sweep(Launch(trainer=FUNCTION), FUNCTION), [], session)
    assert why and why.code == "no-worker" and "hpq.agent" in why.text
    assert "hpq run" not in why.text and "kubectl" not in why.text


def test_a_worker_with_the_trainer_takes_it() -> None:
    assert explain_no_worker(_sweep(DIGITS), [_worker()]) is None


def test_a_worker_without_the_trainer_does_not() -> None:
    why = explain_no_worker(_sweep(DIGITS), [_worker(takes=())])
    assert why and why.code == "trainer-missing" and "'digits'" in why.text


def test_a_refusal_is_told_in_the_workers_words_without_escapes() -> None:
    worker = _worker(refuses={"s-00000": Notice("code-missing", "no \x1b[31mcode")})
    why = explain_no_worker(_sweep(DIGITS), [worker])
    assert why and why.code == "code-missing" and why.text.endswith(": no code")


def test_one_willing_worker_is_enough() -> None:
    workers = [_worker(refuses={"s-00000": Notice("code-missing", "no")}), _worker(name="w2")]
    assert explain_no_worker(_sweep(DIGITS), workers) is None


def test_a_faulty_worker_takes_nothing() -> None:
    why = explain_no_worker(_sweep(DIGITS), [_worker(state="faulty")])
    assert why and why.code == "workers-unwilling" and "w1 is faulty" in why.text


def test_a_program_needs_a_key() -> None:
    sweep = _sweep(PROGRAM, signature="mac")
    assert explain_no_worker(sweep, [_worker()]) is not None
    assert explain_no_worker(sweep, [_worker(key="k")]) is None  # nobody knows whose it is


def test_another_code_key_is_told_with_both_fingerprints() -> None:
    sweep = _sweep(PROGRAM, signature="mac", signer="aaaa")
    assert explain_no_worker(sweep, [_worker(key="aaaa")]) is None
    why = explain_no_worker(sweep, [_worker(key="bbbb"), _worker(name="w2", key="cccc")])
    assert why and why.code == "code-key-differs"
    assert all(key in why.text for key in ("aaaa", "bbbb", "cccc"))


def test_workers_that_are_there_for_another_sweep_are_not_called_dead() -> None:
    why = explain_no_worker(_sweep(DIGITS), [_worker(only="other-11111")])
    assert why and why.code == "workers-pinned" and "other-11111" in why.text
    both = [_worker(only="other-11111"), _worker(name="w2", only="s-00000")]
    assert explain_no_worker(_sweep(DIGITS), both) is None


def test_no_worker_of_a_slurm_cluster_names_the_job_script_and_no_command_for_a_login_node(
    golden: Golden,
) -> None:
    for queue in ("default", "small"):
        why = explain_no_worker(_sweep(PROGRAM, queue), [], _at(Server.SLURM))
        assert why and why.code == "no-worker" and "hpq run" not in why.text
        golden.check("waiting", f"no worker of queue {queue} on Slurm", why.text)


def test_a_trial_that_was_cut_off_needs_longer_jobs_of_slurm() -> None:
    cut = replace(_sweep(DIGITS), least_ms=4 * 3_600_000)
    why = explain_no_worker(cut, [], _at(Server.SHARED))
    assert why and why.code == "time-left-short" and "--time 8:00:00" in why.text
    assert _code(explain_no_worker(cut, [], _at(Server.SLURM))) == "time-left-short"
    assert _code(explain_no_worker(cut, [], _at(Server.PRIVATE))) == "no-worker"
    assert explain_no_worker(cut, [_worker()]) is None


def test_the_first_of_several_reasons_is_the_one_that_a_claim_meets_first() -> None:
    ahead = replace(_sweep(DIGITS), id="old-00000", counts=Counts(queued=3))
    status = SweepStatus(
        sweep=replace(_sweep(DIGITS), owner="ana", counts=Counts(queued=3)),
        at_ms=0,
        running=(),
        best=(),
        recent=(),
        workers=(),
        durations=DurationStats(),
        ahead=(ahead,),
        owner=Owner(name="ana", limits={"running": 0}),
        memory=ServerMemory(used=65, limit=64, policy="noeviction"),
        last_event="1-0",
    )
    paused = replace(status.sweep, stored=StoredState.PAUSED)
    why = explain_waiting(replace(status, sweep=paused))
    assert [one.code for one in why_no_trial_starts(paused, why)] == ["sweep-paused"]
    found = []
    busy = _worker(state="busy", trial="old-00000/1")
    for removed in ({"memory": None}, {"owner": None}, {"workers": (busy,)}, {"ahead": ()}):
        found.append(_code(explain_waiting(status)))
        status = replace(status, **removed)
    assert found == ["redis-memory", "owner-limit", "no-worker", "behind"]
    assert explain_waiting(status) is None
