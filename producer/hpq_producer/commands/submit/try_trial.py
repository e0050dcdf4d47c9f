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

from hpq.code.signing import is_signed, key_of
from hpq.domain.sweep import Launch, Sweep
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Params, TrialId
from hpq.errors import Forbidden, UserError
from hpq.store.wire.fields import dumps
from hpq.store.wire.sweep import encode_sweep
from hpq_producer.commands.submit.plan_page import describe_set
from hpq_producer.commands.submit.submit_options import SubmitOptions
from hpq_producer.enqueue.provenance import sweep_code_location
from hpq_producer.scaffold.template import refuse_unfilled
from hpq_producer.session import Session, open_session
from hpq_producer.sweepfile import schema, yaml_reader
from hpq_producer.sweepfile.source import apply, read, resolve
from hpq_producer.sweepfile.spec import parameter_sets
from hpq_producer.targets import complete_sweep_ids, parse_targets
from hpq_producer.terminal.console import print_message, warn

_ID = "try"  # of the sweep in HPQ_SWEEP_ID and HPQ_TRIAL_ID


def try_trial(
    what: Annotated[
        str,
        Argument(
            metavar="FILE|TRIAL",
            help="Sweep file, or a trial: SWEEP/7, or 7 of my last sweep.",
            show_default=False,
            autocompletion=complete_sweep_ids,
        ),
    ],
    sets: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a parameter (lr=0.1) or a value of the file. Repeatable.",
        ),
    ] = None,
    code: Annotated[
        str | None,
        Option(metavar="DIR", help="Directory of the code. Default: as `hpq run` finds it."),
    ] = None,
) -> None:
    """Run one trial in this terminal with your code as it is now; store nothing.

    Standard input is the terminal's, so a debugger works. The exit code is the program's. Without
    --set the parameters are the first ones of the file.

    Examples:
      hpq try sweep.yaml --set lr=0.1
      hpq try digits-3f2a1/7
    """
    _, numbers = parse_targets([what])
    if numbers and not Path(what).exists():
        with open_session() as session:
            sweep, number, params = _of_trial(session, what, code)
        params = _with_values(params, sets or ())
    else:
        sweep, params = _of_file(Path(what), sets or (), code)
        number = 1
    print_message(f"{sweep.launch.what}: {describe_set(params)}")
    _start(sweep, number, params)


def _of_file(file: Path, sets: Iterable[str], code: str | None) -> tuple[Sweep, Params]:
    """Return the sweep of a file and its first parameters, or those of --set."""
    data = yaml_reader.parse(read(file), str(file)).data
    space = data.get("parameters") if isinstance(data, dict) else None
    names = space if isinstance(space, dict) else {}

    def is_of_file(text: str) -> bool:
        key = text.partition("=")[0]
        return resolve(key, names)[0] not in names and key.split(".")[0] in schema.TOP

    above = [text for text in sets if is_of_file(text)]
    submission = SubmitOptions(file=file, sets=above, code=code).submission()
    spec, found = submission.spec, submission.code
    for warning in submission.warnings:
        warn(warning)
    refuse_unfilled(spec.source, file)
    first = next(iter(parameter_sets(spec)), None)
    params = _with_values(first or {}, [text for text in sets if text not in above])
    launch = found.launch if found.files is None else _live(found.launch, found.folder)
    sweep = Sweep(
        id=_ID,
        name=spec.name,
        digest=submission.digest,
        launch=launch,
        metric=spec.metric,
        early=spec.early,
        method=spec.method,
        seed=spec.seed,
    )
    return sweep, params


def _live(launch: Launch, folder: Path) -> Launch:
    """Return a launch that runs the code in its directory, not a copy."""
    return replace(launch, code_dir=str(folder.resolve()), bundled=False)


def _of_trial(session: Session, what: str, code: str | None) -> tuple[Sweep, int, Params]:
    """Return the sweep, number and parameters of a trial.

    Raises:
        Forbidden: the launch record is not signed with this machine's key.
        UserError: the code's directory is not on this machine.
    """
    ref, numbers = parse_targets([what])
    sweep = session.sweep(ref)
    trial = session.reader.trials.get(TrialId(sweep=sweep.id, number=numbers[0]))
    launch, key = sweep.launch, key_of(session.settings, make=False)
    signed = key and is_signed(key, session.settings.prefix, sweep.id, launch, sweep.signature)
    if launch.trainer not in SHIPPED and not signed:
        text = f"{sweep.id} is not signed with this machine's key, so its command does not run here"
        raise Forbidden(f"{text}; `hpq show {trial.id}` prints it", code="code-not-signed")
    if launch.code_dir or launch.bundled:
        folder = Path(code or sweep_code_location(sweep).folder)
        if not folder.is_dir():
            text = f"the code of {sweep.id} is not at {folder}"
            raise UserError(f"{text}; name its directory with --code", code="code-missing")
        sweep = replace(sweep, launch=_live(launch, folder))
    return sweep, trial.id.number, trial.params


def _with_values(params: Params, sets: Iterable[str]) -> Params:
    """Return the parameters with those of --set.

    Raises:
        UserError: a --set has no '=', or names no parameter.
    """
    document = replace(yaml_reader.parse("0", "--set"), data=dict(params))
    for text in sets:
        key, equals, value = text.partition("=")
        path = resolve(key, document.data)
        if not equals or path[0] not in params:
            names = ", ".join(params) or "none"
            raise UserError(f"--set {text}: write NAME=VALUE; the parameters are {names}")
        label = f"--set {text}"
        document = apply(document, [(label, path, yaml_reader.parse(value or "''", label))])
    assert isinstance(document.data, dict)
    return document.data


def _start(sweep: Sweep, number: int, params: Params) -> None:
    """Replace this process by one of the worker's package that runs the trial.

    The terminal's signals and the exit code are then the trial's own.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the next program reads it
    about = {"id": sweep.id, "number": number, "params": params, "sweep": encode_sweep(sweep)}
    file.write(dumps(about).encode())
    file.seek(0)
    os.set_inheritable(file.fileno(), True)
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "hpq_worker.foreground", str(file.fileno())]
    os.execve(sys.executable, command, os.environ)
