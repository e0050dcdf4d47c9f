"""Format a trial as command-line options, or as the shell command that runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import hpq
from hpq.code.command import arguments, argv, interpreter
from hpq.domain.sweep import Launch, Wandb
from hpq.domain.trial import Params, TrialId
from hpq.errors import UserError
from hpq.search.replicates import seed_of_result
from hpq.settings import Settings
from hpq.shell import shell_line
from hpq.store.reader import StoreReader
from hpq_producer.query.selection import refuse_altered, refuse_unsigned


def to_args(params: Params, command: tuple[str, ...] = (), of: TrialId | str = "") -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell.

    Raises:
        UserError: a value has control characters; the message names the JSON of the trial `of`.
    """
    return shell_line(arguments(command, params), f"hpq show {of} -o json")


_WANDB_SHIM = Path(hpq.__file__).parent / "wandb_shim" / "stub"


def trial_command(
    reader: StoreReader, found: TrialId | str, settings: Settings, *, unsigned: bool = False
) -> str:
    """Return the shell line that runs a trial by hand, with the code and seed as enqueued.

    Of code that this machine's key signed, `hpq try` runs the stored copy. For a trainer of other
    code, built-in, installed or --live, it calls the trainer; the line of such a program has the
    command that a worker on this machine starts. A program that reads its parameters from a file
    gets one under /tmp.

    Raises:
        UserError: `found` is a sweep, its parameters are not those that were signed, or no key of
            this machine signed them and `unsigned` is not set.
    """
    if isinstance(found, str):
        text = f"{found} is a sweep; name one of its trials, e.g. {found}/1"
        raise UserError(text, code="trial-missing")
    sweep, trial = reader.sweeps.get(found.sweep), reader.trials.get(found)
    refuse_altered([trial])
    launch, seed = sweep.launch, seed_of_result(sweep, trial)
    if launch.is_function:
        text = f"{found} calls a function of a script; `hpq show {found}` prints its parameters"
        raise UserError(text, code="wrong-place")
    if not unsigned:
        refuse_unsigned(settings, sweep, "prints its command")
    if launch.bundled and not unsigned:
        return shell_line(["hpq", "try", str(found), "--as-enqueued", "--seed", str(seed)])
    return _by_hand(found, launch, trial.params, seed, settings)


def _by_hand(found: TrialId, launch: Launch, params: Params, seed: int, settings: Settings) -> str:
    file, remedy = f"/tmp/hpq-{found.sweep}-{found.number}.json", f"hpq show {found} -o json"
    env: list[str] = []
    if launch.trainer:
        words = trainer_words(launch.trainer, params, seed)
    else:
        env = [f"HPQ_SEED={seed}"]
        words = list(
            argv(launch.command, launch.program, params, environ=os.environ, params_file=file,
                 interpreter=interpreter(os.environ, settings.python), gpus=settings.gpus_per_trial)
        )  # fmt: skip
        if launch.wandb is Wandb.STAND_IN:
            shim = f"PYTHONPATH={shell_line([str(_WANDB_SHIM)])}:$PYTHONPATH"
            env = [shim, f"HPQ_PARAMS={file}", *env]
    steps = [f"cd {shell_line([launch.code_dir])}"] if launch.code_dir else []
    if launch.bundled:
        code = shell_line(["hpq", "show", found.sweep, "--code", ".", "--unsigned"])
        steps = ['cd "$(mktemp -d)"', code]
        steps += [f"cd {shell_line([launch.below])}"] if launch.below else []
    if file in words or env[1:]:
        steps.append(f"printf %s {shell_line([json.dumps(dict(params))], remedy)} > {file}")
    return " && ".join([*steps, " ".join([*env, shell_line(words, remedy)])])


def trainer_words(trainer: str, params: Params, seed: int) -> list[str]:
    """Return the words of the `hpq try` command that calls a trainer with these parameters."""
    # Not in ASCII: YAML, which --set reads, does not join the two escapes of one character.
    words = ["hpq", "try", trainer, "--seed", str(seed)]
    for name, value in params.items():
        words += ["--set", f"{name}={json.dumps(value, ensure_ascii=False)}"]
    return words
