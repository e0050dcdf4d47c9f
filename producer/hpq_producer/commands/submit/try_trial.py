"""`hpq try`: run one trial in this terminal, without workers; nothing is written to Redis."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq import datasets
from hpq.code.bundle import read_kept
from hpq.domain.sweep import Launch, Sweep
from hpq.domain.trial import Params, TrialId, TrialView
from hpq.errors import SettingsError, UserError
from hpq.notice import Notice
from hpq.search.samplers import seed_of_result
from hpq.store.wire.fields import dumps_in_order
from hpq.store.wire.sweep import encode_sweep
from hpq_producer.commands.submit.plan_page import describe_set
from hpq_producer.commands.submit.submit_options import SubmitOptions
from hpq_producer.diagnosis.notices import edited_since, print_if_edited
from hpq_producer.enqueue.provenance import sweep_code_location
from hpq_producer.query.selection import refuse_altered
from hpq_producer.scaffold.template import refuse_unfilled
from hpq_producer.session import Session, environment, load_settings, open_session
from hpq_producer.sweepfile import yaml_reader
from hpq_producer.sweepfile.source import apply, resolve
from hpq_producer.sweepfile.spec import parameter_sets
from hpq_producer.targets import complete_sweep_ids, find_target
from hpq_producer.terminal.console import print_message, warn


def try_trial(
    what: Annotated[
        str,
        Argument(
            metavar="FILE|TRIAL",
            help="Sweep file, or a trial: SWEEP/7, or 7 of your last sweep.",
            show_default=False,
            autocompletion=complete_sweep_ids,
        ),
    ],
    sets: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Set a parameter: lr=0.1. Repeatable."),
    ] = None,
    as_enqueued: Annotated[
        bool, Option("--as-enqueued", help="Run the signed copy of the code that Redis keeps.")
    ] = False,
) -> None:
    """Run one trial in this terminal with your code as it is now; store nothing.

    Standard input is the terminal's, so a debugger works. The exit code is the program's. Without
    --set the parameters are the first ones of the file. HPQ_SEED, if set, is the seed.

    Examples:
      hpq try sweep.yaml --set lr=0.1
      hpq try digits-3f2a1/7 --as-enqueued
    """
    stored, code = None, b""
    if Path(what).suffix or Path(what).is_file():
        if as_enqueued:
            raise UserError(f"--as-enqueued runs a trial of a sweep; {what} is a file")
        sweep, number, params = _of_file(Path(what))
    else:
        with open_session() as session:
            stored, trial = _of_trial(session, what)
            number, params = trial.id.number, trial.params
            sweep = replace(stored, seed=seed_of_result(stored, trial), replicates=1)
            if as_enqueued:
                code = _stored_code(session, stored)
            else:
                sweep = _with_code_here(session, sweep, trial.id)
    if sweep.launch.trainer in datasets.WANTED:
        datasets.find(sweep.launch.trainer, load_settings().data)
    params, sweep = _with_values(params, sets or ()), _with_seed(sweep)
    print_message(f"{sweep.launch.what}: {describe_set(params)}")
    _start(sweep, number, params, stored, code)


def _of_file(file: Path) -> tuple[Sweep, int, Params]:
    """Return the sweep of a file, and its first parameters as trial 1."""
    submission = SubmitOptions(file=file).submission()
    spec, code = submission.spec, submission.code
    refuse_unfilled(spec.source, file)
    for warning in submission.warnings:
        warn(warning)
    sweep = Sweep(
        id="try",
        name=spec.name,
        digest=submission.digest,
        launch=code.launch if code.files is None else _live(code.launch, code.folder),
        metric=spec.metric,
        early=spec.early,
        method=spec.method,
        seed=spec.seed,
    )
    return sweep, 1, next(parameter_sets(spec), {})


def _of_trial(session: Session, what: str) -> tuple[Sweep, TrialView]:
    """Return a trial and its sweep.

    Raises:
        UserError: it names a sweep, or its parameters are not those that were signed.
    """
    found = find_target(session.reader, what, session.settings.user)
    if not isinstance(found, TrialId):
        text = f"{found} is a sweep; name one of its trials, e.g. {found}/1"
        raise UserError(text, code="trial-missing")
    trial = session.reader.trials.get(found)
    refuse_altered([trial])
    return session.reader.sweeps.get(found.sweep), trial


def _stored_code(session: Session, sweep: Sweep) -> bytes:
    """Return the bundle of a sweep's code, unverified; empty if it is installed or on this disk.

    Raises:
        UserError: no copy of the code was taken, or the copy was deleted.
    """
    launch, data = sweep.launch, session.reader.sweeps.bundle(sweep.bundle)
    is_here = data is not None or read_kept(session.settings.home, launch.code) is not None
    if (launch.bundled and not is_here) or (launch.code_dir and not launch.bundled):
        why = "deleted for newer code, or too large for Redis" if launch.bundled else "--live"
        text = f"{sweep.id}: there is no copy of its code here ({why})"
        raise UserError(f"{text}; without --as-enqueued, your code runs", code="code-not-kept")
    print_if_edited(session, sweep)
    return data or b""


def _with_code_here(session: Session, sweep: Sweep, trial: TrialId) -> Sweep:
    if not (sweep.launch.code_dir or sweep.launch.bundled):
        return sweep
    folder = Path(sweep_code_location(sweep).folder)
    here = folder if folder.is_dir() else Path.cwd()
    if edited := edited_since(session, sweep, str(here)):
        text = f"{edited} changed since the enqueue; to run the code of the sweep: hpq try {trial}"
        warn(Notice("code-edited", f"{text} --as-enqueued"))
    return replace(sweep, launch=_live(sweep.launch, here))


def _with_seed(sweep: Sweep) -> Sweep:
    """Return a sweep whose trial runs with the seed of HPQ_SEED, if that is set."""
    text = os.environ.get("HPQ_SEED", "")
    if text and not text.isdecimal():
        raise SettingsError(f"HPQ_SEED: {text!r} is not a whole number")
    return replace(sweep, seed=int(text), replicates=1) if text else sweep


def _live(launch: Launch, folder: Path) -> Launch:
    """Return a launch that runs the code in its directory, not a copy."""
    return replace(launch, code_dir=str(folder.resolve()), bundled=False)


def _with_values(params: Params, sets: Iterable[str]) -> Params:
    """Return the parameters with those of --set.

    Raises:
        UserError: a --set has no '=', or names no parameter.
    """
    document = replace(yaml_reader.parse("0", "--set"), data=dict(params))
    for text in sets:
        key, equals, value = text.partition("=")
        path, label = resolve(key, document.data), f"--set {text}"
        if not equals or path[0] not in params:
            names = ", ".join(params) or "none"
            raise UserError(f"{label}: write NAME=VALUE; the sweep's parameters are {names}")
        document = apply(document, [(label, path, yaml_reader.parse(value or "''", label))])
    assert isinstance(document.data, dict)
    return document.data


def _start(sweep: Sweep, number: int, params: Params, stored: Sweep | None, code: bytes) -> None:
    """Replace this process by one of the worker's package that runs the trial.

    It refuses a sweep if it does not trust the record `stored` in Redis, and a bundle of `code`
    that is not the record's. The terminal's signals and the exit code are then the trial's own.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the next program reads it
    about = {"id": sweep.id, "number": number, "params": params, "sweep": encode_sweep(sweep)}
    if stored is not None:
        about["stored"] = encode_sweep(stored)
    file.write(dumps_in_order(about).encode() + b"\n" + code)
    file.seek(0)
    os.set_inheritable(file.fileno(), True)
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "hpq_worker.foreground", str(file.fileno())]
    # A machine that has joined a server has its key and its prefix in files.
    os.execve(sys.executable, command, os.environ if stored is None else environment())
