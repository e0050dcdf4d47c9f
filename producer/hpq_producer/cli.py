"""`hpq`: runs the command that a line names; errors become one line and an exit code.

A command's module is imported when the command is used, so that `hpq --help` needs neither redis
nor rq. `hpq --help` prints the table.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.models import ParameterInfo

from hpq import __version__
from hpq import process_start as hpq_process
from hpq.error_codes import ExitCode
from hpq.errors import HpqError, UserError
from hpq.interrupts import Interruptible
from hpq.notice import linked
from hpq.sanitize import guard_terminals
from hpq.shell import shell_hint
from hpq_producer.commands.table import ALIASES, COMMANDS, WHERE

_EXIT_CODES = {
    ExitCode.SOME_FAILED: "a trial failed, or none has the metric",
    ExitCode.USER: "wrong file, option or setting",
    ExitCode.OUT_OF_REACH: "no answer from Redis or the cluster",
    ExitCode.UNKNOWN: "not found, or permission denied",
    ExitCode.HELD: "sweep held after failures, no worker for it, or a wait's timeout passed",
    ExitCode.OVER_BUDGET: "sweep held by its budget",
    ExitCode.TIME_UP: "a worker's time is up, and trials are left",
}
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def _with_defaults(params: Iterable[Any]) -> list[Any]:
    """Set the default of typer's own switches: --help and --install-completion."""
    found = [*params]
    for param in found:
        if param.param_type_name == "option" and param.is_flag and param.default is None:
            param.default = False  # typer would convert None with pydantic
    return found


class Command(TyperCommand):
    """A command whose --json and --csv are short for -o, and whose help names each value."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        text, found, examples = (self.help or "").partition("\n\nExample")
        self.help = text
        self.epilog = f"\b\nExample{examples}" if found else None
        callback: Any = self.callback
        self.value_types = value_types(callback)
        params: list[Any] = self.params
        for param in params:
            param.secondary_opts = []  # no --no-once: a switch is off unless it is given
            value_type = self.value_types[param.name]
            if param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper()
            elif param.metavar is None and not value_type.has_names:
                param.metavar = _METAVARS.get(value_type.kind, "TEXT")

    def invoke(self, ctx: Any) -> Any:
        with Interruptible():
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> Any:
        return _with_defaults(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options; an argument has its name alone, without its type."""
        arguments = []
        options = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                arguments.append((param.metavar, record[1]))
            else:
                options.append(record)
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line; leave their values in `ctx.params`."""
        if any("--output" in param.opts for param in self.params):
            end = args.index("--") if "--" in args else len(args)
            short = {"--json": "--output=json", "--csv": "--output=csv"}
            args = [short.get(word, word) for word in args[:end]] + args[end:]
        try:
            given, rest, order = self.make_parser(ctx).parse_args(args=args)
        except Exception as error:
            if hasattr(error, "ctx"):  # the parser of options does not know the command
                error.ctx = ctx
            raise

        def place(param: Any) -> tuple[bool, int]:
            """First --help, then as they were written: the first wrong one is the error."""
            written = order.index(param) if param in order else len(order)
            return not param.is_eager, written

        for param in sorted(self.get_params(ctx), key=place):
            if param.name not in self.value_types:  # --help
                param.handle_parse_result(ctx, given, rest)
                continue
            try:
                ctx.params[param.name] = self._value(ctx, param, given)
            except UserError:
                if not ctx.resilient_parsing:  # the shell completes a line that is not right yet
                    raise
                ctx.params[param.name] = None
        if rest and not ctx.resilient_parsing:
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(rest)})")
        ctx.args = rest
        return rest

    def _value(self, ctx: Any, param: Any, given: Mapping[str, Any]) -> Any:
        """Return the value of an option or argument, of several words a list."""
        value, _ = param.consume_value(ctx, given)
        is_argument = param.param_type_name == "argument"
        name = param.metavar if is_argument else "/".join(param.opts)
        help_hint = f"`{ctx.command_path} --help` lists the options"
        if param.required and value in (None, (), []):
            example = (self.epilog or "").partition("hpq ")[2].partition("\n")[0]
            example = f", e.g. hpq {example}" if example else ""
            raise UserError(f"missing {name}{example}; {help_hint}")
        read = self.value_types[param.name].read
        try:
            found: Any
            if param.multiple or param.nargs == -1:
                found = [read(one, name) for one in value or ()]
            else:
                found = None if value is None else read(value, name)
        except UserError as error:
            raise UserError(f"{error}; {help_hint}") from None
        return found if param.callback is None else param.callback(ctx, param, found)


_CLOSE = 0.75  # similarity of a command of another tool; at difflib's 0.6, nope would be nodes
_METAVARS: dict[Any, str] = {int: "N", float: "SECONDS", Path: "PATH"}
_JSON = re.compile(r"(^|\s)(--json|(-o|--output)[ =]?json)(\s|$)")
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Lazy(TyperGroup):
    """A group that imports the module of a command when the command is used.

    Typer carries its own copy of click and names its types privately, hence `Any`.
    """

    def get_params(self, ctx: Any) -> Any:
        return _with_defaults(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(WHERE)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in WHERE:
            return None
        path, _, function = WHERE[cmd_name][0].partition(":")
        module = importlib.import_module(path)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        context = _CONTEXT | getattr(module, "CONTEXT", {})
        made = alone.command(cmd_name, cls=Command, context_settings=context)
        made(getattr(module, function or cmd_name.replace("-", "_")))
        return get_command(alone)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in WHERE and not name.startswith("-"):
            near = get_close_matches(name, (*WHERE, *ALIASES), n=2, cutoff=_CLOSE)
            close = dict.fromkeys(ALIASES.get(one, one).partition("/")[0] for one in near)
            close |= dict.fromkeys(get_close_matches(name, WHERE, n=1))
            meant = " or ".join(f"`hpq {one}`" for one in close)
            hint = f"did you mean {meant}?" if meant else "`hpq --help` lists the commands"
            if name in ALIASES:
                hint = "use " + " or ".join(f"`hpq {one}`" for one in ALIASES[name].split("/"))
            raise UserError(f"no command {name!r}; {hint}", code="command-unknown")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage("hpq", "[--debug] [--version] COMMAND …")
        formatter.write(f"\nhpq {__version__}: hyperparameter sweeps on your own GPUs.\n")
        for group, commands in COMMANDS.items():
            formatter.write(f"\n{group}\n")
            formatter.write_dl([(f"  {name}", line) for name, (_, line) in commands.items()])
        names = ((c, _EXIT_CODES.get(c, c.name.lower().replace("_", " "))) for c in ExitCode)
        codes = "; ".join(f"{int(code)} {name}" for code, name in names)
        formatter.write("\n`hpq COMMAND --help` describes a command.\n")
        formatter.write("`hpq --install-completion` makes the shell complete commands and ids.\n")
        formatter.write_text(f"Exit codes: {codes}.")

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command line; print each error as one line, also those that click finds."""
        words = list(sys.argv[1:] if more.get("args") is None else more["args"])
        if words[:1] == ["help"]:
            words = [*(word for word in words[1:2] if word != "help"), "--help"]
        options = words[: words.index("--")] if "--" in words else words
        self.as_json = bool(_JSON.search(" ".join(options)))
        self.words = words
        try:
            code = super().main(*args, **{**more, "args": words, "standalone_mode": False})
        except typer.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):  # at a question
                sys.exit(int(ExitCode.INTERRUPTED))
            code = self._say(
                UserError("declined; nothing was changed", code="declined"), ExitCode.SOME_FAILED
            )
        except Exception as error:
            if "_HPQ_COMPLETE" in os.environ:  # the shell completes a line that is not right yet
                sys.exit(1)
            if isinstance(error, OSError) and error.errno in _FULL_DISK:  # printing a help
                sys.exit(self._say(error))
            if not hasattr(error, "format_message"):
                raise
            where = getattr(getattr(error, "ctx", None), "command_path", "hpq")
            what = " ".join(error.format_message().split()).rstrip(".")
            what += _help_of_option(error)
            code = self._say(UserError(f"{what}; `{where} --help` lists the options"))
        sys.exit(code if isinstance(code, int) else int(ExitCode.DONE))

    def invoke(self, ctx: Any) -> Any:
        console = importlib.import_module("hpq_views.text.console")
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # else Python finds a full disk when it exits
        except KeyboardInterrupt:
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except BrokenPipeError:  # `hpq results | head`
            console.discard_stdout()
            raise typer.Exit(int(ExitCode.DONE)) from None
        except Exception as error:
            if ctx.params.get("debug") or type(error).__module__.startswith("typer"):
                raise
            raise typer.Exit(self._say(error)) from None

    def _say(self, error: Exception, exit_code: ExitCode | None = None) -> int:
        """Print an error on stderr, with -o json also on stdout; return the exit code."""
        console = importlib.import_module("hpq_views.text.console")
        if isinstance(error, OSError) and error.errno in _FULL_DISK:
            place = f" {error.filename}" if error.filename else ""
            text = f"cannot write{place}: {error.strerror}; free some space"
            error = UserError(text, code="disk-full")
            console.discard_stdout()
        if not isinstance(error, HpqError):
            what = " ".join(f"{type(error).__name__}: {error}".split())
            again = shell_hint(["hpq", "--debug", *self.words])
            text = f"internal error: {what}; the traceback: {again}"
            error = HpqError(text, code="internal")
        try:
            for notice in error.notices:
                print(f"hpq: {linked(notice)}", file=sys.stderr)
            if self.as_json:
                print(json.dumps({"error": error.record()}, indent=2), flush=True)
        except OSError:  # of a full disk; the exit code remains
            console.discard_stdout()
        return int(error.exit_code if exit_code is None else exit_code)


def _help_of_option(error: Any) -> str:
    """Return `: --sort NAME  Sort by …` of the option that an error is about; "" without one."""
    name, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    for param in context.command.params if context else ():
        if name in param.opts:
            return f": {name} {param.metavar or ''}  {param.help}".rstrip(".")
    return ""


app = typer.Typer(
    cls=Lazy,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_CONTEXT,
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    """Hyperparameter sweeps on your own GPUs."""
    importlib.import_module("hpq_views.text.console").replace_unknown_characters()
    if version:
        typer.echo(f"hpq {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Run the command line."""
    hpq_process.open_streams()
    hpq_process.overwrite()  # training code of this machine may run beside any command
    guard_terminals()
    try:
        app(prog_name="hpq")
    finally:
        gc.freeze()  # what is left ends with the process


_EXPECTED: dict[Any, str] = {int: "a whole number, such as 3", float: "a number, such as 0.5"}


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of an option's value, or of each one of several, and its limits."""

    kind: Any
    low: float | None = None
    high: float | None = None

    @property
    def has_names(self) -> bool:
        """True for an enumeration, whose values are a few names."""
        return hasattr(self.kind, "__members__")

    def read(self, value: Any, name: str) -> Any:
        """Return a value as this type.

        Raises:
            UserError: it is none; the message begins with the option's name.
        """
        try:
            found = self.kind(value)
        except ValueError:
            names = ", ".join(map(str, self.kind)) if self.has_names else ""
            what = _EXPECTED.get(self.kind) or f"one of {names}"
            raise UserError(f"{name}: write {what}") from None
        if self.low is not None and not found >= self.low:  # also NaN
            raise UserError(f"{name}: write {self.low:g} or more")
        if self.high is not None and found > self.high:
            raise UserError(f"{name}: write {self.high:g} or less")
        return found


def value_types(command: Callable[..., Any]) -> dict[str, ValueType]:
    """Return the type of each option and argument of a command's function, by its name."""
    found = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        limits = None
        for note in getattr(kind, "__metadata__", ()):  # of Annotated[…, Option(…)]
            if isinstance(note, ParameterInfo):
                limits = note
        while inner := get_args(kind):  # of Annotated, list[…] and … | None
            kind = inner[0]
        found[name] = ValueType(kind, limits.min, limits.max) if limits else ValueType(kind)
    return found
