"""Checks before an enqueue: the search settings, and whether the sampler is installed."""

from __future__ import annotations

from dataclasses import replace

from hpq.domain.sweep import Goal, Impute, ObjectiveValue, SweepView
from hpq.gpus import gpu_names
from hpq.search.samplers import Sampler, Search, is_installed, missing, unaided
from hpq.store.wire.search import encode_search
from hpq_producer.enqueue.submission import Submission
from hpq_producer.sweepfile.spec import SweepSpec


def late_search(submission: Submission) -> Search | None:
    """Return the search settings; None if all parameters are generated at enqueue."""
    spec = submission.spec
    if spec.space is None or not spec.is_late:
        return None
    metric = spec.metric
    return Search(
        space=spec.space,
        sampler=_sampler_of(spec),
        seed=spec.keys.seed,
        replicates=spec.keys.replicates,
        maximize=metric is not None and metric.goal is Goal.MAXIMIZE,
        metric=metric.name if metric else "",
        take=(spec.keys.metric and spec.keys.metric.value) or ObjectiveValue.BEST,
        impute=metric.impute if metric else Impute.WORST,
        impute_while_running=metric.impute_while_running if metric else None,
        maximizes=tuple(one.goal is Goal.MAXIMIZE for one in spec.objectives),
        constraints=len(spec.constraints),
    )


def _sampler_of(spec: SweepSpec) -> Sampler:
    """Return the sampler of a sweep file."""
    return spec.keys.sampler if spec.method == "bayes" else Sampler.RANDOM


def with_late_search(
    sweep: SweepView, submission: Submission, search: Search, older: int
) -> SweepView:
    """Return the sweep with its search settings; `older` parameter sets have copied results.

    These do not count against run_cap, which limits the trials that run.
    """
    spec, requested = submission.spec, submission.spec.trials
    size = spec.uncapped_trials
    cap = 0 if requested is None else requested + older * spec.keys.replicates
    return replace(
        sweep,
        sampler=search.sampler,
        search=encode_search(search),
        run_cap=cap if size is None else min(cap or size, size),
    )


def missing_samplers(submission: Submission) -> tuple[str | None, str | None]:
    """Return what to install so that the sampler runs here, and so that it works at its best."""
    if not submission.spec.is_late:
        return None, None
    sampler = _sampler_of(submission.spec)
    return missing(sampler, is_installed), unaided(sampler, is_installed)


def without_gpu(submission: Submission) -> str | None:
    """Return a warning if the article's full-size trainer would run without a GPU, else None."""
    names = submission.spec.source.get("parameters")
    small = isinstance(names, dict) and {"width", "train_images"} & names.keys()
    if submission.spec.keys.trainer != "cifar10" or small or gpu_names():
        return None
    return (
        "no GPU found: on a CPU, a trial of all images at full width takes hours; use the small"
        " sweep configs/cifar10-16-small.yaml"
    )
