"""When enqueue says that trials may lose hours for want of a store."""

from __future__ import annotations

from hpq.domain.status import Worker
from hpq.domain.sweep import Keep
from hpq.notice import Notice
from hpq_views.why.warn import explain_missing_store
from tests.support.golden import Golden
from tests.support.views import sweep_view


def said(
    *stores: str, here: bool = False, pod: str = "", cluster: bool = False, **fields: object
) -> Notice | None:
    workers = [Worker(name=f"w{i}", store=store, pod=pod) for i, store in enumerate(stores)]
    return explain_missing_store(
        sweep_view(**fields), workers, is_set_here=here, in_cluster=cluster
    )


def text(notice: Notice | None) -> str:
    assert notice and notice.code == "no-store"
    return notice.text


def test_live_workers_know_better_than_the_environment_here(golden: Golden) -> None:
    assert said("yes", "yes") is None and said("yes", here=True) is None
    golden.check("enqueue", "no worker has a store", text(said("no", "no", here=True)))
    golden.check("enqueue", "one of two workers has no store", text(said("yes", "no")))


def test_where_no_worker_tells_the_environment_is_the_sign(golden: Golden) -> None:
    assert said(here=True) is None and said("", here=True) is None
    assert said("") is None and said() is None  # nor does the sweep tell that its trials are long
    assert said("", timeout_s=3600.0)
    golden.check("enqueue", "no store is set here", text(said(timeout_s=3600.0)))


def test_trials_that_are_short_lose_nothing_worth_a_line_but_what_they_should_keep(
    golden: Golden,
) -> None:
    assert said(timeout_s=600.0) is None
    assert said(timeout_s=3600.0)
    kept = text(said(timeout_s=60.0, keep=Keep(best=1)))
    golden.check("enqueue", "keep without a store", kept)


def test_workers_in_pods_get_a_store_by_the_manifests() -> None:
    remedy = "`store: {}` in cluster.yaml"
    assert remedy in text(said("no", pod="hpq-worker-1"))
    assert remedy in text(said(timeout_s=3600.0, cluster=True))
    assert "manifests" not in text(said("no")) + text(said(timeout_s=3600.0))
