"""Check before an enqueue: how are the parameters searched, and is the sampler installed?"""

from __future__ import annotations

from dataclasses import replace

from hpq.domain.sweep import SCHEMA, Goal, Impute, ObjectiveValue, Sweep
from hpq.gpus import gpu_names
from hpq.search.search_spec import BY_DEFAULT, Sampler, Search, is_installed, missing, unaided
from hpq.store.wire.search import encode_search
from hpq_producer.enqueue.submission import Submission
from hpq_producer.sweepfile.spec import SweepSpec


def late_search(submission: Submission) -> Search | None:
    """How the sets are searched; None where all of them are made at enqueue."""
    spec = submission.spec
    if spec.space is None or not spec.is_late:
        return None
    metric = spec.metric
    keys = spec.source.get("metric")
    metric_keys = keys if isinstance(keys, dict) else {}
    return Search(
        space=spec.space,
        sampler=sampler_of(spec),
        seed=spec.seed,
        replicates=spec.replicates,
        maximize=metric is not None and metric.goal is Goal.MAXIMIZE,
        metric=metric.name if metric else "",
        take=ObjectiveValue(str(metric_keys.get("value", ObjectiveValue.BEST))),
        impute=metric.impute if metric else Impute.WORST,
        impute_while_running=metric.impute_while_running if metric else None,
    )


def sampler_of(spec: SweepSpec) -> Sampler:
    """Who makes the sets."""
    if spec.method != "bayes":
        return Sampler.RANDOM
    return Sampler(spec.sampler or BY_DEFAULT)


def with_late_search(sweep: Sweep, submission: Submission, search: Search, older: int) -> Sweep:
    """The sweep as one whose sets are made while it runs; `older` sets of it have their results.

    These are no part of run_cap, which says how many are to run.
    """
    spec, requested = submission.spec, submission.spec.trials
    size = spec.uncapped_trials
    cap = 0 if requested is None else requested + older * spec.replicates
    return replace(
        sweep,
        schema=SCHEMA,
        sampler=search.sampler,
        search=encode_search(search),
        run_cap=cap if size is None else min(cap or size, size),
    )


def missing_sampler(submission: Submission) -> str | None:
    """What has to be installed here for the sampler to run here, in a line."""
    if not submission.spec.is_late:
        return None
    return missing(sampler_of(submission.spec), is_installed)


def missing_sampler_aid(submission: Submission) -> str | None:
    """What has to be installed here for the sampler to find its best sets here, in a line."""
    if not submission.spec.is_late:
        return None
    return unaided(sampler_of(submission.spec), is_installed)


def without_gpu(submission: Submission) -> str | None:
    """Return a warning if the article's full-size trainer would run without a GPU, else None."""
    names = submission.spec.source.get("parameters")
    small = isinstance(names, dict) and {"width", "train_images"} & names.keys()
    if submission.spec.trainer != "cifar10" or small or gpu_names():
        return None
    return (
        "no GPU here: a trial of all images at full width takes hours on a CPU; a small sweep is in"
        " configs/cifar10-16-small.yaml"
    )
