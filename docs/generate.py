"""Write commands.md, settings.md, errors.md, llms.txt and the schemas of files (`make reference`).

A test compares the files with the code, so run this after every change of a help text.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from typer.core import TyperArgument

from hpq.error_codes import ExitCode
from hpq.redis.credentials import SECRETS
from hpq.settings import ABOUT, Settings, variable
from hpq_ops.manifests import cluster_file
from hpq_producer.cli import Lazy
from hpq_producer.commands.table import COMMANDS
from hpq_producer.sweepfile import model

FOLDER = Path(__file__).parent / "reference"
ERRORS = Path(__file__).with_name("errors.yaml")  # texts by heading and id
INDEX = Path(__file__).with_name("README.md")
RAW = "https://raw.githubusercontent.com/hpq-project/hpq/main/"
FORGE = "https://github.com/hpq-project/hpq/blob/main/docs/"  # of pages that the site leaves out
COLUMNS = 100
_COMMON = 2  # commands that share an option, from which on it is listed once

_COMMANDS = """\
# Commands

`make reference` writes this page from the code.

`hpq COMMAND --help` prints the same text; blocks are examples. If an argument SWEEP is optional,
the command uses your last sweep; in scripts and on a shared server, `stop`, `cancel` and `rm` need
it. The first characters of a sweep's id are enough. SWEEP/7 is trial 7 of a sweep. [Common
options](#common-options) are at the end.

| exit code | meaning |
|---|---|
"""
_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.SOME_FAILED: "a trial failed, none has the metric, or the command was declined",
    ExitCode.USER: "a file, an option or a setting is wrong",
    ExitCode.OUT_OF_REACH: "Redis or the cluster does not answer, or a value is unreadable",
    ExitCode.UNKNOWN: "no such sweep, trial or worker, or no permission",
    ExitCode.HELD: "the sweep is held, no worker can run it, or the timeout of `hpq wait` passed",
    ExitCode.OVER_BUDGET: "the sweep is held by its budget",
    ExitCode.TIME_UP: "the time of a worker's allocation is up, and trials are left",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
_ERRORS = """\
# Errors

`make reference` writes this page from `docs/errors.yaml`.

Errors, warnings and the lines of `hpq doctor` end with an id: `hpq: no sweep begins with 'x'
[sweep-not-found]`. The message says what happened and which command helps; this page adds causes
and further remedies. Messages may change between versions, ids do not. With `-o json`, the id is
`code`. Failures of trials have [kinds](../explanation/concepts.md#failure-kinds).
"""
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


def wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 100 columns."""
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those with commands only are blocks of code."""
    for part in text.replace("\b\n", "").replace("\f", "").strip().split("\n\n"):
        lines = [line.strip() for line in part.splitlines() if line.strip()]
        if lines and lines[0].startswith("Example"):
            first = lines.pop(0).partition(": ")[2]
            yield "\n".join(["```", *filter(None, [first, *lines]), "```"])
        elif lines and all(line.removeprefix("$ ").startswith("hpq ") for line in lines):
            yield "\n".join(["```", *lines, "```"])
        elif lines:
            yield wrapped(" ".join(lines))


def value_of(param: Any) -> str:
    """Return the placeholder of an option's value: nothing for a switch."""
    choices = "|".join(map(str, param.type_descriptor.choices or ()))
    return "" if param.is_flag else str(param.metavar or choices)


def option(param: Any) -> str:
    """Return an option or argument as an item: its names, value, help and default."""
    if isinstance(param, TyperArgument):
        shown = param.metavar or param.name
        shown = shown if " " in shown else shown.strip("{}[]").upper()
        shown = shown if param.required else f"[{shown}]"
        names = f"`{shown}...`" if param.nargs == -1 and " " not in shown else f"`{shown}`"
    else:
        names = ", ".join(f"`{name} {value_of(param)}".rstrip() + "`" for name in param.opts)
    words = [" ".join((param.help or "").split())]
    default = param.default if isinstance(param.default, int | float | str) else None
    if default not in (None, False, "") and "default" not in words[0].lower():
        words.append(f"Default: {default}.")
    if param.max is not None:
        words.append(f"From {param.min:g} to {param.max:g}.")
    elif param.min is not None:
        words.append(f"At least {param.min:g}.")
    return item(names, " ".join(word for word in words if word))


def _listed(name: str) -> list[Any]:
    params = Lazy().get_command(None, name).params
    return [param for param in params if param.name != "help" and not param.hidden]


def _names_of(text: str) -> str:
    """Return the names of an item: `--output FORMAT`, `-o FORMAT`."""
    return text.removeprefix("- ").partition(":")[0]


def _first_of(names: str) -> str:
    """Return the first name without its value: `--output` of `--output FORMAT`, `-o FORMAT`."""
    return "`" + re.split("[ `]", names)[1] + "`"


def _shared(names: Iterable[str]) -> dict[str, str]:
    """Return the items that several commands share, by their names: of each name the usual one."""
    counts = Counter(option(param) for name in names for param in _listed(name))
    usual = [text for text, count in reversed(counts.most_common()) if count >= _COMMON]
    return dict(sorted({_names_of(text): text for text in usual}.items()))


def _options(params: Sequence[Any], shared: Mapping[str, str]) -> str:
    """Return a command's options as a list; the last item has the common ones, one name of each."""
    items = [option(param) for param in params]
    own = [text for text in items if shared.get(_names_of(text)) != text]
    common = ", ".join(_first_of(_names_of(text)) for text in items if text not in own)
    return "\n".join([*own, *([item("[Common](#common-options)", common)] if common else [])])


def commands() -> str:
    """Return the text of commands.md."""
    out = [_COMMANDS + "".join(f"| {int(c)} | {_MEANINGS[c]} |\n" for c in ExitCode)]
    shared = _shared(name for names in COMMANDS.values() for name in names)
    for group, names in COMMANDS.items():
        out.append(f"## {group}\n")
        for name in names:
            command = Lazy().get_command(None, name)
            out.append(f"### hpq {name}\n")
            out += [f"{text}\n" for text in paragraphs(command.help or "")]
            if listed := _listed(name):
                out.append(_options(listed, shared) + "\n")
            out += [f"{text}\n" for text in paragraphs(command.epilog or "")]
    return "\n".join([*out, "## Common options\n", *shared.values(), ""])


def errors() -> str:
    """Return the text of errors.md."""
    out = [_ERRORS]
    for heading, ids in yaml.safe_load(ERRORS.read_text("utf-8")).items():
        out.append(f"## {heading}\n")
        for name, text in sorted(ids.items()):
            out.append(f"### {name}\n\n{wrapped(text)}\n")
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


def llms() -> str:
    """Return the text of llms.txt (llmstxt.org): the lists of the index, as links to Markdown."""
    head, *parts = INDEX.read_text("utf-8").split("\n## ")
    title, summary = head.split("\n\n")[:2]
    out = [title, "> " + " ".join(summary.split())]
    for part in parts:
        heading, _, text = part.partition("\n")
        lines = re.sub(r"\n +", " ", text).splitlines()  # an item may be wrapped
        links = [re.search(r"^(?:-|\d+\.) (\[.+?\]\()(.+)", line) for line in lines]
        items = [f"- {one[1]}{RAW}docs/{one[2].removeprefix(FORGE)}" for one in links if one]
        out.append(f"## {heading}\n\n" + "\n".join(items))
    return "\n\n".join(out) + "\n"


def schema_text(schema: dict[str, Any]) -> str:
    """Return the text of a schema's file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


PAGES = {
    FOLDER / "commands.md": commands,
    FOLDER / "errors.md": errors,
    FOLDER / "settings.md": settings,
    INDEX.with_name("llms.txt"): llms,
    model.SCHEMA_FILE: lambda: schema_text(model.json_schema()),
    cluster_file.SCHEMA_FILE: lambda: schema_text(cluster_file.json_schema()),
}

if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text(), "utf-8")
