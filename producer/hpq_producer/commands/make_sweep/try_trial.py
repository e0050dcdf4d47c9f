"""`hpq try`: run one trial in this terminal, without workers; nothing is written to Redis."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq import datasets
from hpq.access.session import Session, environment, load_settings, open_session
from hpq.code.bundle import read_kept
from hpq.code.signing import own_directory
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trainer_specs import BUILT_IN, built_in_launch
from hpq.domain.trial import Params, TrialId, TrialView
from hpq.errors import UserError
from hpq.notice import Notice, print_message, warn
from hpq.search.replicates import seed_of_result
from hpq.store.wire.fields import dumps_in_order
from hpq.store.wire.sweep import encode_sweep
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import apply, check_text, resolve
from hpq_producer.commands.make_sweep.enqueue_options import EnqueueOptions
from hpq_producer.commands.make_sweep.set_text import describe_set
from hpq_producer.scaffold.script import read_script
from hpq_producer.scaffold.template import refuse_unfilled
from hpq_producer.sweepfile.spec import parameter_sets
from hpq_views.analysis.selection import refuse_altered
from hpq_views.targets import complete_sweep_ids, find_target, parse_targets
from hpq_views.why.warn import edited_since, print_if_edited


def try_trial(
    what: Annotated[
        str,
        Argument(
            metavar="TRAINER|TRIAL|FILE",
            help=f"Trainer: {', '.join(BUILT_IN)} or MODULE:FUNCTION. Trial: SWEEP/7, or 7 of your"
            " last sweep. Anything else is the path of a sweep file.",
            show_default=False,
            autocompletion=complete_sweep_ids,
        ),
    ],
    sets: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Set a parameter: lr=0.1. Repeatable."),
    ] = None,
    seed: Annotated[
        int | None,
        Option(min=0, help="Seed of the trial. Default: its own, or that of the file, or 0."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option(metavar="DIR", help="Keep checkpoints in DIR, and resume from those in it."),
    ] = None,
    as_enqueued: Annotated[
        bool, Option("--as-enqueued", help="Run the signed copy of the code that Redis keeps.")
    ] = False,
) -> None:
    """Run one trial in this terminal with your code as it is now; store nothing.

    Standard input is the terminal's, so a debugger works. The exit code is the program's. Without
    --set a trainer uses its defaults, and a file its first parameters. Ctrl-C stops a trainer at
    its next step, with a checkpoint; a second one interrupts it. Only a TRIAL needs Redis.

    Examples:
      hpq try cifar10 --set width=8 --set epochs=3
      hpq try sweep.yaml --set lr=0.1
      hpq try digits-3f2a1/7 --as-enqueued
    """
    stored = None
    code = b""
    number = 1
    is_trainer = False
    is_trial = not Path(what).is_file() and bool(parse_targets([what])[1])
    if as_enqueued and not is_trial:
        raise UserError(f"--as-enqueued runs a trial of a sweep, such as SWEEP/7, not {what}")
    params: Params = {}
    if is_trial:
        with open_session() as session:
            stored, trial = _of_trial(session, what)
            number, params = trial.id.number, trial.params
            if trial.start is not None:
                print_message(f"begins anew, not at the checkpoint of #{trial.start.trial}")
            sweep = replace(stored, seed=seed_of_result(stored, trial), replicates=1)
            if as_enqueued:
                code = _stored_code(session, stored)
            else:
                sweep = _with_code_here(session, sweep, trial.id)
    elif what in BUILT_IN or (":" in what and not Path(what).exists()):
        sweep, is_trainer = _of_trainer(what), True
    else:
        sweep, params = _of_file(Path(what))
    others = [] if code else _options(sweep.launch)
    params = _with_values(params, sets or (), others, is_open=is_trainer)
    if seed is not None:
        sweep = replace(sweep, seed=seed, replicates=1)
    _check(sweep.launch.trainer, params)
    about = {"id": sweep.id, "number": number, "params": params, "sweep": encode_sweep(sweep)}
    if stored is not None:
        about["stored"] = encode_sweep(stored)
    if checkpoint is not None:
        about["checkpoint"] = str(_kept(checkpoint))
    print_message(": ".join(filter(None, (sweep.launch.what, describe_set(params)))))
    # A machine that has joined a server has its key and its prefix in files.
    _start(about, code, os.environ if stored is None else environment())


def _of_trainer(trainer: str) -> SweepView:
    """Return the sweep of a built-in trainer, or of a function of this directory.

    Raises:
        UserError: the text is not MODULE:FUNCTION, or Python finds no such module.
    """
    if trainer in BUILT_IN:
        launch, metric = built_in_launch(trainer), BUILT_IN[trainer].metric
        return SweepView(
            id="try", name=trainer, digest="", launch=launch, metric=metric, method="grid"
        )
    module, _, function = trainer.partition(":")
    plain = module.removesuffix(".py").replace("/", ".").strip(".")
    if not (module and function) or plain != module:
        text = f"{trainer}: write MODULE:FUNCTION, e.g. {plain or 'train'}:{function or 'train'}"
        raise UserError(text, code="trainer-invalid")
    here, top = Path.cwd(), module.partition(".")[0]
    if PathFinder.find_spec(top, [str(here), *sys.path]) is None:
        close = get_close_matches(top, [path.stem for path in here.glob("*.py")], n=1)
        hint = f"did you mean {close[0]}:{function}?" if close else "run this in its directory"
        text = f"{trainer}: module {top!r} is neither in {here} nor installed; {hint}"
        raise UserError(text, code="trainer-not-found")
    launch = Launch(trainer=trainer, code_dir=str(here))
    return SweepView(id="try", name=top, digest="", launch=launch, metric=None, method="grid")


def _of_file(file: Path) -> tuple[SweepView, Params]:
    """Return the sweep of a file, and its first parameters.

    Raises:
        UserError: there is no such file, or it is invalid.
    """
    if not file.suffix and not file.exists():
        close = get_close_matches(str(file).lower(), BUILT_IN, n=1, cutoff=0.75)
        hint = f"did you mean {close[0]!r}?" if close else f"a trial of a sweep is {file}/1"
        hint = "trial numbers begin at 1" if str(file).isdecimal() else hint
        raise UserError(f"{file}: no such file; {hint}", code="file-not-found")
    prepared = EnqueueOptions(file=file).prepare()
    spec, code = prepared.spec, prepared.code
    refuse_unfilled(spec.source, file)
    for warning in prepared.warnings:
        warn(warning)
    sweep = SweepView(
        id="try",
        name=spec.name,
        digest=prepared.digest,
        launch=code.launch if code.files is None else _live(code.launch, code.folder),
        metric=spec.metric,
        objectives=spec.objectives,
        constraints=spec.constraints,
        early=spec.early,
        method=spec.method,
        seed=spec.keys.seed,
    )
    return sweep, next(parameter_sets(spec), {})


def _of_trial(session: Session, what: str) -> tuple[SweepView, TrialView]:
    """Return a trial and its sweep.

    Raises:
        UserError: its parameters are not those that were signed.
    """
    found = find_target(session.reader, what, session.settings.user)
    assert isinstance(found, TrialId)
    sweep = session.reader.sweeps.get(found.sweep)
    trial = session.reader.trials.get(found)
    refuse_altered(session.settings, [sweep], [trial])
    return sweep, trial


def _stored_code(session: Session, sweep: SweepView) -> bytes:
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


def _with_code_here(session: Session, sweep: SweepView, trial: TrialId) -> SweepView:
    """Return a sweep that runs its code in this user's directory of it, else in the current one."""
    if not (sweep.launch.code_dir or sweep.launch.bundled):
        return sweep
    here = own_directory(session.settings, sweep) or Path.cwd()
    if edited := edited_since(session, sweep, str(here)):
        text = f"{edited} changed since the enqueue; to run the code of the sweep: hpq try {trial}"
        warn(Notice("code-edited", f"{text} --as-enqueued"))
    return replace(sweep, launch=_live(sweep.launch, here))


def _live(launch: Launch, folder: Path) -> Launch:
    """Return a launch that runs the code in its directory, not a copy."""
    return replace(launch, code_dir=str(folder.resolve()), bundled=False)


def _options(launch: Launch) -> list[str]:
    """Return the parameters that a sweep's code reads, as far as it names them."""
    if launch.trainer in BUILT_IN:
        return [*BUILT_IN[launch.trainer].params]
    try:
        script = read_script(Path(launch.code_dir, launch.program))
    except UserError:  # no Python script
        return []
    return [option.name for option in script.options if not option.why_not]


def _with_values(
    params: Params, sets: Iterable[str], others: Sequence[str], *, is_open: bool
) -> Params:
    """Return the parameters with those of --set, which are in `params` or named in `others`.

    `is_open`: any name is one, dots included.

    Raises:
        UserError: a --set has no '=', its value is not YAML, or it names no parameter.
    """
    document = replace(yaml_reader.parse("0", "--set"), data=dict(params))
    for text in sets:
        key, equals, value = text.partition("=")
        is_whole = is_open or key in others
        path, label = (key,) if is_whole else resolve(key, document.data), f"--set {text}"
        if not (key and equals):
            raise UserError(f"{label}: write NAME=VALUE")
        if not (is_whole or path[0] in params or path[0] in others):
            close = get_close_matches(key, [*params, *others], n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            names = ", ".join(dict.fromkeys([*params, *others])) or "none"
            text = f"{label}: no such parameter; {hint}the parameters are {names}"
            raise UserError(text, code="unknown-parameter")
        check_text(value, label)
        document = apply(document, [(label, path, yaml_reader.parse(value or "''", label))])
    assert isinstance(document.data, dict)
    return document.data


def _check(trainer: str, params: Params) -> None:
    """Check the parameters and the data of a built-in trainer; list all if one is unknown.

    Raises:
        BadParams: a parameter is unknown or outside its limits.
        DataMissing: the data set is not in HPQ_DATA.
    """
    if (spec := BUILT_IN.get(trainer)) is None:
        return
    if params.keys() - spec.params.keys():
        print_message(f"parameters of {trainer}, with defaults and allowed values:")
        for name, one in spec.params.items():
            print_message(f"  {name:21} {one.default!s:8} {one.allowed}")
    spec.fill(params)
    if trainer in datasets.WANTED:
        datasets.find(trainer, load_settings().data)


def _kept(folder: Path) -> Path:
    """Return the directory of --checkpoint, which exists then.

    Raises:
        UserError: it cannot be made or read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = any(folder.iterdir())
    except OSError as error:
        text = f"--checkpoint {folder}: {error.strerror}; name a directory that you may write"
        raise UserError(text, code="file-unwritable") from None
    if found:
        print_message(f"--checkpoint {folder}: not empty; the training code may resume from it")
    return folder.resolve()


def _start(about: Mapping[str, object], code: bytes, environ: Mapping[str, str]) -> None:
    """Replace this process by one of the worker's package that runs the trial.

    It refuses a sweep if it does not trust the record `stored` in Redis, and a bundle of `code`
    that is not the record's. The terminal's signals and the exit code are then the trial's own.
    """
    with tempfile.TemporaryFile() as file:
        file.write(dumps_in_order(about).encode() + b"\n" + code)
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        sys.stdout.flush()
        command = [sys.executable, "-P", "-m", "hpq_worker.terminal_attempt", str(file.fileno())]
        os.execve(sys.executable, command, environ)
