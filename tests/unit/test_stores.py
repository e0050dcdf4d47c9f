"""When enqueue says that trials may lose hours for want of a store."""

from __future__ import annotations

from hpq.snapshot import Worker
from hpq.sweep import Keep, Launch, Sweep
from producer.look.stores import why_not_kept

SWEEP = {"id": "s-00000", "name": "s", "digest": "d", "launch": Launch(program="train.py")}


def said(
    *stores: str, here: bool = False, pod: str = "", cluster: bool = False, **fields: object
) -> str:
    workers = [Worker(name=f"w{i}", store=store, pod=pod) for i, store in enumerate(stores)]
    sweep = Sweep(**{**SWEEP, **fields})  # type: ignore[arg-type]
    return why_not_kept(sweep, workers, is_set_here=here, in_cluster=cluster) or ""


def test_live_workers_know_better_than_the_environment_here() -> None:
    assert said("yes", "yes") == "" and said("yes", here=True) == ""
    assert said("no", "no", here=True).startswith("no live worker has HPQ_STORE: a trial that")
    assert said("yes", "no").startswith("1 of 2 live workers has no HPQ_STORE: ")


def test_where_no_worker_tells_the_environment_is_the_sign() -> None:
    assert said(here=True) == said("", here=True) == ""
    assert said("") == said() == ""  # nor does the sweep tell that its trials are long
    assert said("", timeout_s=3600.0).startswith(
        "HPQ_STORE is not set here; where workers have none, a trial"
    )
    assert "starts again from its beginning; set it to a directory" in said(timeout_s=3600.0)


def test_trials_that_are_short_lose_nothing_worth_a_line_but_what_they_should_keep() -> None:
    assert said(timeout_s=600.0) == ""
    assert said(timeout_s=3600.0)
    assert "and `keep` keeps nothing" in said(timeout_s=60.0, keep=Keep(best=1))


def test_workers_in_pods_get_a_store_by_the_manifests() -> None:
    remedy = "; give them one: `hpq manifests … --with store`, or a URL as their HPQ_STORE"
    assert said("no", pod="hpq-worker-1").endswith(remedy)
    assert said(timeout_s=3600.0, cluster=True).endswith(remedy)
    assert "manifests" not in said("no") and "manifests" not in said(timeout_s=3600.0)
