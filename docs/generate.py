"""Write commands.md, settings.md and sweep.schema.json from the code (`make reference`).

A test compares the files with the code, so run this after every change of a help text.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from typer.core import TyperArgument

from hpq.connection.credentials import SECRETS
from hpq.errors import ExitCode
from hpq.settings import ABOUT, Settings, variable
from hpq_producer.cli import COMMANDS, Lazy
from hpq_producer.sweepfile import model

FOLDER = Path(__file__).parent / "reference"
COLUMNS = 100

_COMMANDS = """\
# Commands

`make reference` writes this page from the code.

`hpq COMMAND --help` prints the same text. If an argument SWEEP is optional, the command uses your
last sweep. The first characters of a sweep's id are enough. SWEEP/7 is trial 7 of a sweep.

| exit code | meaning |
|---|---|
"""
_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.SOME_FAILED: "a trial failed, none has the metric, or the command was declined",
    ExitCode.USER: "a file, an option or a setting is wrong",
    ExitCode.OUT_OF_REACH: "Redis or the cluster does not answer, or a value is unreadable",
    ExitCode.UNKNOWN: "no such sweep, trial or worker, or no permission",
    ExitCode.HELD: "the sweep is held, or no worker can run it",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
_SETTINGS = """\
# Settings

`make reference` writes this page from the code.

Settings are environment variables. `hpq doctor --settings` prints the values in use and hides
secrets. An empty variable counts as not set. A name that is close to a setting is an error.

"""


def item(name: str, text: str) -> str:
    """Return a wrapped item of a list."""
    return textwrap.fill(
        f"- {name}: {text}" if text else f"- {name}",
        COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those with commands only are blocks of code."""
    for part in text.replace("\b\n", "").replace("\f", "").strip().split("\n\n"):
        lines = [line.strip() for line in part.splitlines() if line.strip()]
        if lines and lines[0].startswith("Example"):
            head, _, first = lines.pop(0).partition(": ")
            yield head.rstrip(":") + ":"
            yield "\n".join(["```", *filter(None, [first, *lines]), "```"])
        elif lines and all(line.removeprefix("$ ").startswith("hpq ") for line in lines):
            yield "\n".join(["```", *lines, "```"])
        elif lines:
            yield textwrap.fill(" ".join(lines), COLUMNS, break_on_hyphens=False)


def value_of(param: Any) -> str:
    """Return the placeholder of an option's value: nothing for a switch."""
    choices = "|".join(map(str, param.type_descriptor.choices or ()))
    return "" if param.is_flag else str(param.metavar or choices)


def option(param: Any) -> str:
    """Return an option or argument as an item: its names, value, help and default."""
    if isinstance(param, TyperArgument):
        shown = param.metavar or param.name
        shown = shown if " " in shown else shown.strip("{}[]").upper()
        names = f"`{shown}`" if param.required else f"`[{shown}]`"
    else:
        names = ", ".join(f"`{name} {value_of(param)}".rstrip() + "`" for name in param.opts)
    words = [" ".join((param.help or "").split())]
    default = param.default if isinstance(param.default, int | float | str) else None
    if default not in (None, False, "") and "default" not in words[0].lower():
        words.append(f"Default: {default}.")
    return item(names, " ".join(word for word in words if word))


def commands() -> str:
    """Return the text of commands.md."""
    out = [_COMMANDS + "".join(f"| {int(c)} | {_MEANINGS[c]} |\n" for c in ExitCode)]
    for group, names in COMMANDS.items():
        out.append(f"## {group}\n")
        for name in names:
            command = Lazy().get_command(None, name)
            out.append(f"### hpq {name}\n")
            out += [f"{text}\n" for text in paragraphs(command.help or "")]
            listed = [p for p in command.params if p.name != "help" and not p.hidden]
            if listed:
                out.append("\n".join(option(param) for param in listed) + "\n")
            out += [f"{text}\n" for text in paragraphs(command.epilog or "")]
    return "\n".join(out)


def settings() -> str:
    """Return the text of settings.md."""
    lines = []
    for one in fields(Settings):
        if one.name not in ABOUT:
            continue
        default = (
            "" if variable(one.name) in SECRETS or one.default in ("", (), None) else one.default
        )
        shown = f" (default {default:g})" if isinstance(default, float) else f" (default {default})"
        about = ABOUT[one.name]
        lines.append(item(f"`{variable(one.name)}`{shown if default != '' else ''}", about))
    return _SETTINGS + "\n".join(lines) + "\n"


def sweep_schema() -> str:
    """Return the text of sweep.schema.json."""
    return json.dumps(model.json_schema(), indent=1, ensure_ascii=False) + "\n"


PAGES = {
    FOLDER / "commands.md": commands,
    FOLDER / "settings.md": settings,
    model.SCHEMA_FILE: sweep_schema,
}

if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text(), "utf-8")
