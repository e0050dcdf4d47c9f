"""`hpq init`."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import SweepFileError, UserError
from hpq_producer.scaffold import script as script_reader
from hpq_producer.scaffold.template import sweep_file, unfilled
from hpq_producer.shipped import shipped
from hpq_producer.sweepfile.load import load
from hpq_producer.terminal.console import print_message


def init(
    script: Annotated[
        Path | None, typer.Argument(help="A training script.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write; - for stdout.",
            show_default="sweep.yaml; with --example NAME.yaml",
        ),
    ] = None,
    example: Annotated[
        str, typer.Option(metavar="NAME", help="Write a sweep file that hpq ships, e.g. digits.")
    ] = "",
) -> None:
    """Write a first sweep file from a script's argparse, Typer, click or wandb options."""
    if example:
        if script is not None:
            raise UserError(f"{script} and --example {example}: give one of the two")
        _example(example, out or Path(f"{example}.yaml"))
        return
    if script is None:
        raise UserError("no script to read: hpq init SCRIPT, or hpq init --example NAME")
    out = out or Path("sweep.yaml")
    found = script_reader.read_script(script)
    program = _seen_from(script, Path.cwd())
    text = sweep_file(found, program)
    if not any(line.startswith("  ") and line[2] != "#" for line in text.splitlines()):
        raise UserError(
            f"{script}: no option that a sweep could set; give it some, such as"
            " parser.add_argument('--lr', type=float, default=0.1)",
            code="script-without-options",
        )
    if str(out) == "-":
        print(text, end="")
        return
    _write(out, text)
    spec = load(out)
    print_message(f"{out}: {len(spec.varying)} parameters of {script}; look it over")
    for place in unfilled(dict(spec.source)):
        print_message(f"! {place}")
    if spec.metric is None:
        print_message("! no metric was found: see the comment in the file")
    print_message(f"next: hpq plan {shlex.quote(str(out))}")
    print(out)


def _example(name: str, out: Path) -> None:
    """Write a shipped sweep file, and beside the file the program that the sweep file names."""
    files = {path.stem: path for path in sorted(shipped("configs").glob("*.yaml"))}
    if name not in files:
        raise UserError(f"--example {name}: there are {', '.join(files)}")
    text = files[name].read_text("utf-8")
    if str(out) == "-":
        print(text, end="")
        return
    if program := load(files[name]).program:
        _copy(files[name].with_name(program), out.with_name(program))
    _write(out, text)
    print_message(f"next: hpq plan {shlex.quote(str(out))}")
    print(out)


def _copy(source: Path, target: Path) -> None:
    """Copy a program; one with the same text may be there already."""
    text = source.read_text("utf-8")
    if target.exists() and target.read_text("utf-8") != text:
        text = f"{target}: is there; --out names a file in another directory"
        raise UserError(text, code="file-exists")
    try:
        target.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}", code="file-unwritable") from None


def _seen_from(script: Path, folder: Path) -> str:
    """The script as a program of the folder: relative where it lies in it."""
    resolved = script.resolve()
    try:
        return str(resolved.relative_to(folder.resolve()))
    except ValueError:
        return str(resolved)


def _write(path: Path, text: str) -> None:
    """Write a file that is not there yet, whole or not at all, once it is known to load.

    Raises:
        UserError: it is there, or cannot be written.
    """
    if path.exists():
        raise UserError(f"{path}: is there; --out names another file", code="file-exists")
    draft = path.with_name(f".{path.name}.{os.getpid()}.yaml")
    try:
        draft.write_text(text, "utf-8")
        load(draft)
        os.link(draft, path)
    except FileExistsError:
        raise UserError(f"{path}: is there; --out names another file", code="file-exists") from None
    except SweepFileError as error:
        found = [replace(p, text=p.text.replace(str(draft), str(path))) for p in error.notices]
        raise SweepFileError(problems=found) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", code="file-unwritable") from None
    finally:
        draft.unlink(missing_ok=True)
