"""`hpq.enqueue`: queue a sweep that Python code describes, or that a file holds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpq.access.session import api_session
from hpq.domain.sweep import FUNCTION
from hpq.errors import UserError
from hpq_producer.actions.set_limits import check_tags
from hpq_producer.enqueue.enqueue_sweep import enqueue_sweep
from hpq_producer.enqueue.prepare import prepare
from hpq_producer.enqueue.reuse import Reuse
from hpq_producer.python_api.plain_data import plain_data
from hpq_producer.python_api.sweep import Sweep
from hpq_producer.sweepfile.load import load
from hpq_views.text.yaml_text import to_yaml

_DICT = Path("sweep")  # names a dict in messages, and the sweep if the dict has no name


def enqueue(
    sweep: Mapping[str, Any] | str | os.PathLike[str],
    *,
    name: str | None = None,
    count: int | None = None,
    seed: int | None = None,
    code: str | os.PathLike[str] | None = None,
    live: bool = False,
    tags: Iterable[str] = (),
    new: bool = False,
    reuse: bool = False,
) -> Sweep:
    """Queue the trials of a sweep; return it, or the identical sweep that exists already.

    `sweep` is the content of a sweep file as a dict, or the path of one. The options are those of
    `hpq enqueue`. Programs are searched for in the working directory. A dict that names no code is
    for functions, which `hpq.agent` calls.

    Raises:
        SweepFileError: the dict or the file is invalid; one line per problem.
        UserError: the code is missing, or an option is invalid.
        OutOfReach: Redis does not answer, or has no room for the sweep.
    """
    if not isinstance(sweep, Mapping | str | os.PathLike):
        raise UserError(f"a sweep is a dict or the path of a file, not a {type(sweep).__name__}")
    labels = check_tags(tags)
    if isinstance(sweep, Mapping) and not sweep.keys() & {"program", "command", "trainer"}:
        sweep = {**sweep, "trainer": FUNCTION}
    path = _DICT if isinstance(sweep, Mapping) else Path(sweep)
    text = to_yaml(plain_data(sweep, "sweep")) if isinstance(sweep, Mapping) else ""
    overrides = {} if seed is None else {"seed": str(seed)}
    spec = load(path, text=text, overrides=overrides, count=count, name=name)
    prepared = prepare(spec, path, None if code is None else os.fspath(code), is_live=live)
    for notice in prepared.warnings:
        warnings.warn(str(notice), stacklevel=2)
    with api_session() as session:
        done = enqueue_sweep(
            session,
            prepared,
            allow_duplicate=new,
            tags=labels,
            reuse=Reuse.SAME_CODE if reuse else None,
            warn=lambda line: warnings.warn(line, stacklevel=4),
        )
        return Sweep._of(session.reader.sweeps.get(done.sid))
