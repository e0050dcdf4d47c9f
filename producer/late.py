"""Sweeps whose sets are made while they run: what workers need to know, what is missing here."""

from __future__ import annotations

from dataclasses import replace

from hpq.search.record import BY_DEFAULT, Sampler, Search, is_installed, missing, unaided
from hpq.sweep import SCHEMA, Goal, Impute, Sweep, Take
from hpq.wire_search import encode_search
from producer.submission import Submission
from producer.sweepfile.spec import SweepSpec


def search_of(submission: Submission) -> Search | None:
    """How the sets are searched; None where all of them are made at enqueue."""
    spec = submission.spec
    if spec.space is None or not submission.is_late:
        return None
    metric = spec.metric
    keys = spec.source.get("metric")
    told = keys if isinstance(keys, dict) else {}
    return Search(
        space=spec.space,
        sampler=sampler_of(spec),
        seed=spec.seed,
        replicates=spec.replicates,
        maximize=metric is not None and metric.goal is Goal.MAXIMIZE,
        metric=metric.name if metric else "",
        take=Take(str(told.get("value", Take.BEST))),
        impute=metric.impute if metric else Impute.WORST,
        impute_while_running=metric.impute_while_running if metric else None,
    )


def sampler_of(spec: SweepSpec) -> Sampler:
    """Who makes the sets."""
    if spec.method != "bayes":
        return Sampler.RANDOM
    return Sampler(spec.sampler or BY_DEFAULT)


def bound(sweep: Sweep, submission: Submission, search: Search, older: int) -> Sweep:
    """The sweep as one whose sets are made while it runs; `older` sets of it have their results.

    These are no part of run_cap, which says how many are to run.
    """
    spec, wanted = submission.spec, submission.trials
    every = spec.uncapped_trials
    cap = 0 if wanted is None else wanted + older * spec.replicates
    return replace(
        sweep,
        schema=SCHEMA,
        sampler=search.sampler,
        search=encode_search(search),
        run_cap=cap if every is None else min(cap or every, every),
    )


def lacks(submission: Submission) -> str | None:
    """What has to be installed here for the sampler to run here, in a line."""
    if not submission.is_late:
        return None
    return missing(sampler_of(submission.spec), is_installed)


def is_unaided(submission: Submission) -> str | None:
    """What has to be installed here for the sampler to find its best sets here, in a line."""
    if not submission.is_late:
        return None
    return unaided(sampler_of(submission.spec), is_installed)
