"""One number in all views: rank, winner and mean of a sweep with replicates."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

import hpq
from hpq.access.session import open_session
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.constraint import Constraint
from hpq.domain.sweep import Counts, Goal, Metric, SweepView
from hpq.domain.trial import TrialId, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.ranking_reader import RankingReader
from hpq.store.reader import StoreReader
from hpq.store.trial_reader import TrialReader
from hpq.store.trials import TrialStore
from hpq.store.worker_reader import WorkerReader
from hpq_views.analysis.rank_results import read_standings, standings_of
from hpq_views.analysis.summary import SweepSummary
from tests.support.desk import Desk
from tests.support.server import calls
from tests.support.store_calls import end, fail, report, take

Hpq = Callable[..., subprocess.CompletedProcess[str]]
MakeSweep = Callable[..., SweepView]

# Settings of three seeds: one lucky, one steady, one with a pruned seed, one equal to the second.
VALUES = (0.75, 0.125, None, 0.625, 0.75, 0.5, 0.5, 0.5, 0.5, 0.75, 0.5, 0.625)
RANKS = {1: 4, 4: 1, 7: 3, 10: 2}  # by the first trial of each: equal means are ranked by number
SID = "demo-00000"


@pytest.fixture
def seeds(store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep) -> SweepView:
    sweep = sweep_of(12, replicates=3)
    for number, value in enumerate(VALUES, start=1):
        claim = take(store, who)
        if value is None:
            fail(store, claim, "no")
        elif number == 8:
            store.commit(claim, Outcome(state=TrialState.PRUNED, objective=value))
        else:
            end(store, claim, value)
    return sweep


def _data(answer: subprocess.CompletedProcess[str]) -> object:
    assert answer.returncode in (0, 1), answer.stderr
    return json.loads(answer.stdout)


def test_every_command_ranks_settings_alike(hpq: Hpq, seeds: SweepView) -> None:
    firsts = sorted(RANKS, key=lambda first: RANKS[first])
    (listed,) = _data(hpq("ls", "--json"))
    assert listed["best"] == 0.625
    best = _data(hpq("best", "-n", "4", "--json"))
    assert [(one["trial"], one["rank"]) for one in best] == [(n, RANKS[n]) for n in firsts]
    summary = _data(hpq("summary", "--json"))
    assert [one["trial"] for one in summary["ranking"]] == firsts
    assert summary["winner"]["trial"] == 4 and summary["winner"]["of"] == 4
    assert summary["sweep"]["best"] == 0.625
    results = _data(hpq("results", "--json"))
    assert {one["trial"]: one["rank"] for one in results} == {
        n: RANKS[n - (n - 1) % 3] for n in range(1, 13)
    }
    for number in (2, 5, 8, 12):
        shown = hpq("show", f"{SID}/{number}").stdout
        assert re.search(rf"^rank +{RANKS[number - (number - 1) % 3]} of 4$", shown, re.MULTILINE)
    watched = _data(hpq("watch", "--once", "--json"))
    assert (watched["best"][0]["trial"], watched["best"][0]["objective"]) == (4, 0.625)
    chosen = _data(hpq("results", "--where", "rank <= 2 and setting > 2", "--json"))
    assert [(one["trial"], one["rank"], one["setting"]) for one in chosen] == [
        (n, 2, 4) for n in (10, 11, 12)
    ]
    table = [
        line.split() for line in hpq("results", "--sort", "rank", "--top", "3").stdout.splitlines()
    ]
    place = table[0].index("rank")
    assert [row[0] for row in table[1:]] == ["4", "5", "6"]
    assert {row[place] for row in table[1:]} == {"1"}
    few = _data(hpq("best", "-n", "2", "--where", "rank > 2 and feasible", "--json"))
    assert [(one["trial"], one["rank"]) for one in few] == [(7, 3), (1, 4)]
    few = _data(hpq("best", "-n", "4", "--where", "x < 4 or x > 6", "--json"))
    assert [(one["trial"], one["rank"]) for one in few] == [(10, 2), (7, 3), (1, 4)]
    said = hpq("summary", "-n", "1").stdout
    assert "3 more of 4 settings (11 runs), the worst 0.4375" in said


def test_pages_rank_settings_alike_and_call_no_seed_the_winner(
    desk: Desk, seeds: SweepView
) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from hpq_views.page.render import lead_of  # noqa: PLC0415
    from hpq_views.page.sweep_data import encode_sweep  # noqa: PLC0415
    from hpq_views.page.sweep_reads import read_sweep  # noqa: PLC0415
    from hpq_views.page.trial_page import TrialPage  # noqa: PLC0415

    with open_session() as session:
        data = read_sweep(session.reader, SID, session.settings)
        shown = encode_sweep(data)["standing"]["acc"]
        assert shown["n"] == sorted(RANKS, key=lambda first: RANKS[first])
        assert shown["runs"] == [3, 3, 3, 2]
        lead = "".join(text for text, _ in lead_of(data))
        assert "the best of 4 settings (11 runs)" in lead and "0.6250 ± 0.1250" in lead
        assert data.winner is not None and data.winner.trial == 4
        pages = {}
        for number in (1, 5):
            page = TrialPage(session, TrialId(sweep=SID, number=number), lambda: None, acts=False)
            with page.fresh():
                pages[number] = page.html
    assert "its setting has rank 4 of 4" in pages[1] and "seed" in pages[1]
    assert "first of the best setting" in pages[1] and "the winner" not in pages[1]
    assert "its setting has rank 1 of 4" in pages[5] and "best setting" not in pages[5]


def test_a_setting_whose_first_trial_has_not_begun_is_ranked_alike(
    desk: Desk,
    sweep_of: MakeSweep,
    store: TrialStore,
    who: WorkerPresence,
    redis: Redis,
    keys: Keys,
    hpq: Hpq,
) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from hpq_views.page.render import lead_of  # noqa: PLC0415
    from hpq_views.page.sweep_data import encode_sweep  # noqa: PLC0415
    from hpq_views.page.sweep_reads import read_changes, read_sweep  # noqa: PLC0415

    sweep = sweep_of(4, replicates=2)
    redis.zadd(keys.sweep(SID, "waiting"), {"3": 9})  # the last one of the queue
    for value in (0.25, 0.5):
        end(store, take(store, who), value)
    with open_session() as session:
        before = read_sweep(session.reader, SID, session.settings)
        assert [t.id.number for t in before.trials] == [1, 2]
        end(store, take(store, who), 0.75)
        changed = read_changes(session.reader, session.settings, before)
        data = read_sweep(session.reader, SID, session.settings)
    assert data.trials == changed.trials and [t.id.number for t in data.trials] == [1, 2, 3, 4]
    assert data.winner is not None and data.winner.trial == 3
    assert "0.7500" in "".join(text for text, _ in lead_of(data))
    assert encode_sweep(data)["standing"]["acc"]["n"] == [3, 1]
    best = _data(hpq("best", sweep.id, "-n", "2", "--json"))
    assert (best[0]["trial"], best[0]["rank"]) == (3, 1)
    assert "0.7500" in hpq("best", sweep.id).stdout


def test_python_ranks_settings_alike(desk: Desk, seeds: SweepView) -> None:
    sweep = hpq.Sweep(SID)
    assert (sweep.best().number, sweep.best().rank, sweep.best().objective) == (4, 1, 0.625)
    assert [trial.rank for trial in sweep.trials()] == [4, 4, 4, 1, 1, 1, 3, 3, 3, 2, 2, 2]
    assert (sweep[8].rank, sweep.best("x < 4").rank) == (3, 4)


def test_runs_of_wandb_and_a_question_before_a_retry_know_the_best_setting(
    desk: Desk, seeds: SweepView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the best seed: that is of the setting with rank 4."""
    stub = Path(hpq.__file__).parent / "wandb_shim" / "stub"
    monkeypatch.syspath_prepend(str(stub))
    for name in [one for one in sys.modules if one.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    import wandb  # noqa: PLC0415

    best = wandb.Api().sweep(SID).best_run()
    assert (best.id, best.rank) == (f"{SID}-4", 1)
    said = [desk.hpq("retry", f"{SID}/{number}").stderr for number in (4, 1)]
    assert ["the best" in text for text in said] == [True, False]


def test_one_trial_of_several_metrics_stands_as_all_of_them_do(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, redis: Redis
) -> None:
    """It has no rank: the first metric alone ranks none of them."""
    metrics = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="gb", goal=Goal.MINIMIZE))
    sweep_of(3, metric=metrics[0], objectives=metrics)
    for acc, gb in ((0.9, 3.0), (0.5, 1.0), (0.4, 2.0)):
        claim = take(store, who)
        report(store, who, claim, acc=[acc], gb=[gb])
        end(store, claim, acc)
    every = _data(desk.hpq("results", "--json"))
    one = [_data(desk.hpq("best", f"{SID}/{n}", "--json")) for n in (1, 2, 3)]
    assert [row["is_front"] for row in one] == [row["is_front"] for row in every]
    assert not any("rank" in row for row in (*one, *every))
    assert [hpq.Sweep(SID)[n].rank for n in (1, 2, 3)] == [None] * 3
    redis.config_resetstat()
    assert desk.hpq("show", f"{SID}/1").returncode == 0
    assert "zcount" not in calls(redis)  # by which a rank is asked for


@pytest.mark.parametrize(
    ("words", "trials", "best"),
    [
        ("best", 0, 1),
        ("best -n 3", 0, 1),
        ("best --where x>3", 1, 0),
        ("best --by loss", 1, 0),
        ("summary", 1, 0),
        ("summary demo-00000 demo-11111", 2, 0),
        ("summary -o json", 1, 0),
        ("diff demo-00000 demo-11111", 2, 0),
        ("ls", 0, 0),
    ],
)
def test_a_view_reads_results_and_workers_once(
    desk: Desk,
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    control: SweepControl,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    trials: int,
    best: int,
) -> None:
    """A second read may see another moment, and a view that contradicts itself."""
    sweep_of(5, "demo-11111")
    control.pause("demo-11111")
    sweep_of(5)
    for value in (0.5, 0.7, 0.6, 0.9):
        claim = take(store, who)
        report(store, who, claim, loss=[1 - value])
        end(store, claim, value)
    calls = Counter[str]()

    def counted(of: type, name: str) -> None:
        real = getattr(of, name)

        def call(*args: object, **more: object) -> object:
            calls[name] += 1
            return real(*args, **more)

        monkeypatch.setattr(of, name, call)

    counted(TrialReader, "begun")
    counted(RankingReader, "best")
    counted(WorkerReader, "live")
    answer = desk.hpq(*words.split())
    assert answer.returncode in (0, 1), answer.stderr
    assert (calls["begun"], calls["best"]) == (trials, best)
    assert calls["live"] <= max(1, words.count("demo-"))


def test_a_sweep_without_results_counts_its_trials_in_all_states(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sid = sweep_of(5).id
    fail(store, take(store, who), "no")
    assert "4 queued, 1 failed" in desk.hpq("best", sid).stderr
    control.cancel(sid)
    assert "1 failed, 4 cancelled" in desk.hpq("best", sid).stderr


def test_what_is_read_and_what_is_computed_are_one_order(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    limit = (Constraint.parse("gb <= 2"),)
    made = sweep_of(9, replicates=3, constraints=limit)
    values = (0.1, 0.7, 0.3, 0.9, 0.9, 0.9, 0.7, 0.3, 0.1)
    for value, gb in zip(values, (1, 1, 1, 1, 3, 3, 3, 3, 3), strict=True):
        claim = take(store, who)
        report(store, who, claim, acc=[value], gb=[gb])
        end(store, claim, value, infeasible=gb > 2)
    sweep = reader.sweeps.get(made.id)
    found = standings_of(sweep, reader.trials.begun(sweep.id))
    assert found.order == read_standings(reader, sweep).order == [4, 1]
    assert found.infeasible == [7]
    assert [found.of(n) == reader.ranking.standing(sweep, n) for n in range(1, 10)] == [True] * 9


def test_a_summary_is_of_the_trials_that_it_read() -> None:
    """A trial may end between the read of the sweep and that of its trials."""
    from tests.support.views import sweep_view, trial_view  # noqa: PLC0415

    sweep = sweep_view(counts=Counts(queued=3, running=2, cancelled=1))
    states = (TrialState.FINISHED, TrialState.RUNNING, TrialState.FAILED)
    trials = [trial_view(n, state=state) for n, state in enumerate(states, 1)]
    now = SweepSummary(sweep).add(trials).of_moment().counts
    assert (now.total, now.queued, now.running, now.finished) == (6, 2, 1, 1)
    assert (now.failed, now.cancelled) == (1, 1)
