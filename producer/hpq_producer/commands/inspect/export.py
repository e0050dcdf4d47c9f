"""`hpq export`."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.access.session import open_session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve, TrialView
from hpq.errors import UserError
from hpq.notice import print_message
from hpq.shell import shell_hint
from hpq.store.reader import StoreReader
from hpq_views.analysis.history import read_curves
from hpq_views.export.mlflow_runs import MlflowRuns, experiment_of
from hpq_views.export.optuna_journal import OptunaJournal
from hpq_views.export.tensorboard_logs import TensorBoardLogs
from hpq_views.text.text import trials_of


class Peer(StrEnum):
    """The tools for which trials are written."""

    TENSORBOARD = "tensorboard"
    OPTUNA = "optuna"
    MLFLOW = "mlflow"


_OPEN = {
    Peer.TENSORBOARD: ("tensorboard", "--logdir"),
    Peer.OPTUNA: ("optuna-dashboard",),
    Peer.MLFLOW: ("MLFLOW_ALLOW_FILE_STORE=true", "mlflow", "ui", "--backend-store-uri"),
}


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
    """Write a sweep's trials and curves for TensorBoard, MLflow or Optuna.

    TensorBoard's directory has a run for each trial that started, and so has MLflow's, in an
    experiment with the sweep's id; MLflow's directory may hold several sweeps. Optuna's study has
    the trials that ended, with the ranges and choices of the sweep file. Optuna counts trials from
    0: trial 8 of hpq is 7 there, and its user attribute `hpq` is the id in hpq.

    Examples:
      hpq export --to tensorboard logs
      hpq export digits-3f2a1 --to optuna digits.journal
    """
    if len(targets) > 2:
        raise UserError("export takes a sweep and a path: hpq export SWEEP --to optuna PATH")
    path = Path(targets[-1])
    with open_session() as session:
        sweep = session.verifiable(targets[0] if targets[1:] else None)
        target = path / experiment_of(sweep) if to is Peer.MLFLOW else path
        if os.path.lexists(target):
            text = f"{target} exists; remove it, or choose another path"
            raise UserError(text, code="file-exists")
        trials = list(session.reader.trials.all(sweep.id))
        chosen = [t for t in trials if (t.ended_ms if to is Peer.OPTUNA else t.claimed_ms)]
        _write(session.reader, sweep, chosen, to, path, target)
    rest = len(trials) - len(chosen)
    missing = "ended" if to is Peer.OPTUNA else "started"
    left = f"; {trials_of(rest)} not {missing}" if rest else ""
    opens = shell_hint([*_OPEN[to], str(path)])
    print_message(f"{sweep.id}: {trials_of(len(chosen))} written{left}; to open them: {opens}")


def _write(
    reader: StoreReader,
    sweep: SweepView,
    trials: list[TrialView],
    to: Peer,
    path: Path,
    target: Path,
) -> None:
    """Write all or nothing: the target, which is the path or in it, appears when it is complete."""
    is_study, curves = to is Peer.OPTUNA, defaultdict[int, list[Curve]](list)
    metrics = None if not is_study else [sweep.metric.name] if sweep.metric else []
    for curve in read_curves(reader, trials, metrics):
        curves[curve.trial].append(curve)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            part = Path(folder) / "part"
            writer: OptunaJournal | TensorBoardLogs | MlflowRuns
            if to is Peer.MLFLOW:
                writer = MlflowRuns(part, target, sweep)
            else:
                writer = OptunaJournal(part, sweep) if is_study else TensorBoardLogs(part)
            writer.add([(trial, curves[trial.id.number]) for trial in trials])
            target.parent.mkdir(exist_ok=True)
            part.rename(target)
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; choose another path"
        raise UserError(text, code="file-unwritable") from None
