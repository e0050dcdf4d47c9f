"""`hpq export`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.domain.sweep import Sweep
from hpq.domain.trial import Curve, TrialView
from hpq.errors import UserError
from hpq.store.reader import StoreReader
from hpq_producer.query.history import read_curves
from hpq_producer.reports.optuna_journal import OptunaJournal
from hpq_producer.reports.tensorboard_logs import TensorBoardLogs
from hpq_producer.session import open_session
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import shell_line, trials_of


class Peer(StrEnum):
    """The tools for which trials are written."""

    TENSORBOARD = "tensorboard"
    OPTUNA = "optuna"


_OPEN = {Peer.TENSORBOARD: ("tensorboard", "--logdir"), Peer.OPTUNA: ("optuna-dashboard",)}


def export(
    targets: Annotated[
        list[str],
        Argument(
            metavar="[SWEEP] PATH",
            help="The sweep, by default your last one, and the file or directory to write.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Peer,
        Option(help="Tool that reads the directory or file.", show_default=False),
    ],
) -> None:
    """Write a sweep's trials and curves for TensorBoard or Optuna.

    TensorBoard's directory has a run for each trial that started. Optuna's study has the trials
    that ended, with the ranges and choices of the sweep file.

    Examples:
      hpq export --to tensorboard logs
      hpq export digits-3f2a1 --to optuna digits.journal
    """
    if len(targets) > 2:
        raise UserError("export takes a sweep and a path: hpq export SWEEP --to optuna PATH")
    path = Path(targets[-1])
    if os.path.lexists(path):
        text = f"{path} exists; remove it, or choose another path"
        raise UserError(text, code="file-exists")
    with open_session() as session:
        sweep = session.sweep(targets[0] if targets[1:] else None)
        trials = list(session.reader.trials.all(sweep.id))
        chosen = [t for t in trials if _is_chosen(t, to)]
        _write(session.reader, sweep, chosen, to, path)
    rest = len(trials) - len(chosen)
    missing = "started" if to is Peer.TENSORBOARD else "ended"
    left = f"; {trials_of(rest)} not {missing}" if rest else ""
    opens = shell_line([*_OPEN[to], str(path)])
    print_message(f"{sweep.id}: {trials_of(len(chosen))} written{left}; to open them: {opens}")


def _is_chosen(trial: TrialView, to: Peer) -> bool:
    if to is Peer.OPTUNA:  # a trial that was cancelled while it waited has no result
        return trial.ended_ms > 0
    return trial.claimed_ms > 0


def _write(
    reader: StoreReader, sweep: Sweep, trials: list[TrialView], to: Peer, path: Path
) -> None:
    """Write all or nothing: the path appears when it is complete."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            part = Path(folder) / "part"
            metrics = None
            if to is Peer.TENSORBOARD:
                part.mkdir()
                writer: TensorBoardLogs | OptunaJournal = TensorBoardLogs(part)
            else:
                writer = OptunaJournal(part, sweep)
                metrics = [sweep.metric.name] if sweep.metric else []
            writer.add(list(_with_curves(trials, read_curves(reader, trials, metrics))))
            part.rename(path)
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; choose another path"
        raise UserError(text, code="file-unwritable") from None


def _with_curves(
    trials: Iterable[TrialView], curves: Iterable[Curve]
) -> Iterator[tuple[TrialView, list[Curve]]]:
    """Yield each trial with its curves, which follow the order of the trials."""
    groups = groupby(curves, key=lambda curve: curve.trial)
    number, group = next(groups, (0, iter(())))
    for trial in trials:
        mine: list[Curve] = []
        if number == trial.id.number:
            mine = list(group)
            number, group = next(groups, (0, iter(())))
        yield trial, mine
