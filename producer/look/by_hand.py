"""A trial's program as one line of shell, for running it by hand."""

from __future__ import annotations

import os

from hpq.command import argv
from hpq.errors import UserError
from hpq.trial import TrialId
from hpq.view import View
from producer.look.export import shell_line


def by_hand(view: View, found: TrialId | str) -> str:
    """The shell command that a trial's worker starts, with this machine's `python`.

    Raises:
        UserError: a sweep was named, or its trials run a trainer, which is no command.
    """
    if isinstance(found, str):
        raise UserError(f"{found} is a sweep; name one of its trials, {found}/1")
    launch = view.sweep(found.sweep).launch
    if not (launch.program or launch.command):
        raise UserError(f"{found} runs the trainer {launch.trainer}, which has no command")
    words = argv(
        launch.command,
        launch.program,
        view.trial(found).params,
        environ=os.environ,
        params_file="params.json",
        interpreter="python",
    )
    line = shell_line(words)
    return f"cd {shell_line([launch.code_dir])} && {line}" if launch.code_dir else line
