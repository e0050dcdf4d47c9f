"""A trial's program as one line of shell, for running it by hand."""

from __future__ import annotations

import json
import os

from hpq.command import argv
from hpq.errors import UserError
from hpq.trial import TrialId
from hpq.view import View
from producer.look.export import shell_line


def by_hand(view: View, found: TrialId | str) -> str:
    """The shell command that a trial's worker starts, with the interpreter of workers here.

    A command that wants its parameters in a file gets one under /tmp, written first.

    Raises:
        UserError: a sweep was named, or its trials run a trainer, which is no command.
    """
    if isinstance(found, str):
        raise UserError(f"{found} is a sweep; name one of its trials, {found}/1")
    sweep = view.sweep(found.sweep)
    launch, seed = sweep.launch, sweep.seed_of(found.number)
    if not (launch.program or launch.command):
        raise UserError(f"{found} runs the trainer {launch.trainer}, which has no command")
    params = view.trial(found).params
    file = f"/tmp/hpq-{found.sweep}-{found.number}.json"
    words = argv(launch.command, launch.program, params, environ=os.environ, params_file=file)
    steps = [f"cd {shell_line([launch.code_dir])}"] if launch.code_dir else []
    if file in words:
        steps.append(f"printf %s {shell_line([json.dumps(dict(params))])} > {file}")
    variable = f"HPQ_SEED={seed} " if seed or sweep.replicates > 1 else ""
    return " && ".join([*steps, variable + shell_line(words)])
