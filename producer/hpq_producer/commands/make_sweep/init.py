"""`hpq init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from hpq.errors import UserError, writing
from hpq.notice import print_message
from hpq.shell import shell_hint
from hpq.yamlfile.document import read
from hpq.yamlfile.yaml_reader import parse
from hpq_ops.installed_files import installed_folder
from hpq_producer.scaffold import script as script_reader
from hpq_producer.scaffold.script_contents import UNKNOWN
from hpq_producer.scaffold.template import sweep_file, unfilled
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.model import SCHEMA_FILE
from hpq_views.text.text import trials_of

# Editors with yaml-language-server read the schema of this installation: without a network, and
# of the version that will read the file. On another machine they say that the path is missing.
_FIRST_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}\n"


def init(
    script: Annotated[
        Path | None, Argument(help="Training script to read.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            help="File to write; - is stdout. Default: sweep.yaml, or NAME.yaml with --example.",
        ),
    ] = None,
    example: Annotated[
        str, Option(metavar="NAME", help="Write an example that hpq ships, e.g. digits.")
    ] = "",
) -> None:
    """Write a sweep file from a script's argparse or wandb options.

    Examples:
      hpq init train.py
      hpq init --example digits
    """
    if example:
        if script is not None:
            raise UserError(f"{script} and --example {example} exclude each other; remove one")
        _example(example, out or Path(f"{example}.yaml"))
        return
    if script is None:
        raise UserError("no script; use `hpq init SCRIPT` or `hpq init --example NAME`")
    out = out or Path("sweep.yaml")
    found = script_reader.read_script(script, lambda path: _data_of(path, script))
    program = _seen_from(script, Path.cwd())
    text = _FIRST_LINE + sweep_file(found, program)
    if not any(line.startswith("  ") and line[2] != "#" for line in text.splitlines()):
        raise UserError(
            f"{script}: found no option of argparse or wandb that a sweep can set; add one, e.g."
            " parser.add_argument('--lr', type=float, default=0.1); for click, Typer or Hydra, edit"
            " an example: hpq init --example digits",
            code="script-without-options",
        )
    if str(out) == "-":
        print(text, end="")
        return
    _write(out, text)
    spec = load(out)
    count = trials_of(len(spec.varying), "parameter")
    print_message(f"{out}: {count} of {script}; check their ranges")
    for place in unfilled(dict(spec.source)):
        print_message(f"! {place}")
    if spec.metric is None:
        print_message("! found no metric: see the comment in the file")
        if near := found.unread:
            fix = f"{near.name}=NUMBER"
            print_message(f"! {program}:{near.line}: {near.name} is not read; print {fix}")
    print_message(f"next: {shell_hint(['hpq', 'plan', str(out)])}")
    print(out)


def _data_of(path: Path, script: Path) -> Any:
    """Return the data of a YAML file that a script loads; UNKNOWN if it is elsewhere.

    Another person's script may name any file, and the sweep file is written from the data.
    """
    folders = Path.cwd(), script.resolve().parent
    if any(path.resolve().is_relative_to(folder) for folder in folders):
        return parse(read(path), str(path)).data
    return UNKNOWN


def _example(name: str, out: Path) -> None:
    """Write an example sweep file and its program, beside each other."""
    files = {path.stem: path for path in sorted(installed_folder("configs").glob("*.yaml"))}
    if name not in files:
        raise UserError(f"--example {name}: unknown; use one of {', '.join(files)}")
    text = _FIRST_LINE + files[name].read_text("utf-8")
    if str(out) == "-":
        print(text, end="")
        return
    if program := load(files[name]).keys.program:
        _copy(files[name].with_name(program), out.with_name(program))
    _write(out, text)
    print_message(f"next: {shell_hint(['hpq', 'plan', str(out)])}")
    print(out)


def _copy(source: Path, target: Path) -> None:
    """Copy a program, unless the same text exists at the target."""
    text = source.read_text("utf-8")
    with writing(target):
        try:
            with target.open("x", encoding="utf-8") as file:  # follows no link that is there
                file.write(text)
        except FileExistsError:
            if not target.is_file() or target.read_text("utf-8") != text:
                line = f"{target} exists; choose another directory with --out"
                raise UserError(line, code="file-exists") from None


def _seen_from(script: Path, folder: Path) -> str:
    """Return the script's path, relative if it is in the folder."""
    resolved = script.resolve()
    try:
        return str(resolved.relative_to(folder.resolve()))
    except ValueError:
        return str(resolved)


def _write(path: Path, text: str) -> None:
    """Write a new sweep file, after a check that it loads.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    load(path, text=text)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(
            f"{path} exists; choose another file with --out", code="file-exists"
        ) from None
    except OSError as error:
        path.unlink(missing_ok=True)
        text = f"{path}: {error.strerror}; write it elsewhere with --out FILE"
        raise UserError(text, code="file-unwritable") from None
