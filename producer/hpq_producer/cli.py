"""`hpq`: the table of commands, and how errors become one line and an exit code.

A command's module is imported when the command is used, so that `hpq --help` needs neither redis
nor rq; the table below is what `--help` prints.
"""

from __future__ import annotations

import errno
import importlib
import json
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from hpq import __version__
from hpq import process as hpq_process
from hpq.errors import ExitCode, HpqError, UserError

# group → command → (module under hpq_producer.commands, one line); its function has its name
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "init": ("submit.init", "Write a first sweep file from a script's options"),
        "enqueue": ("submit.enqueue", "Put a sweep file's trials on the queue"),
        "run": ("submit.run", "Enqueue, train and watch on this machine"),
        "plan": ("submit.plan", "Show what a sweep file would run, and write nothing"),
        "worker": ("admin.worker", "Start workers that pop trials and train"),
    },
    "Look": {
        "watch": ("inspect.watch", "A sweep, live"),
        "ls": ("inspect.ls", "Sweeps, newest first"),
        "show": ("inspect.show", "A sweep or a trial in full"),
        "logs": ("inspect.logs", "What a trial printed"),
        "summary": ("inspect.summary", "Ranking and bars of a sweep"),
        "best": ("inspect.best", "The winner's parameters"),
        "get": ("inspect.get", "A file that a trial left"),
        "results": ("inspect.results", "All trials as a table, CSV or JSON"),
        "workers": ("inspect.workers", "Live workers"),
        "wait": ("inspect.wait", "Block until a sweep is over"),
    },
    "Control": {
        "pause": ("control.control", "Let no further trial of a sweep start"),
        "resume": ("control.control", "Go on with a paused or held sweep"),
        "stop": ("control.control", "Finish what runs, cancel what waits"),
        "cancel": ("control.control", "Stop a sweep or a trial now"),
        "retry": ("control.control", "Queue failed or cancelled trials again"),
        "set": ("control.control:set_limits", "Change a sweep's limits"),
        "rm": ("control.rm", "Delete a sweep with all its results"),
    },
    "Cluster": {
        "scale": ("cluster.scale", "More or fewer worker pods, idle ones first"),
        "drain": ("cluster.drain", "Let workers end what runs and take nothing more"),
        "connect": ("cluster.connect", "Reach a cluster's Redis from here"),
        "manifests": ("cluster.manifests", "Kubernetes manifests, filled in"),
    },
    "Care": {
        "data": ("admin.data", "Download CIFAR10 or MNIST for the shipped trainers"),
        "doctor": ("admin.doctor", "Check the server, the workers and the data"),
        "audit": ("admin.audit", "Replay a sweep's events: one end each, none lost"),
        "config": ("admin.config", "Settings in force, secrets hidden"),
        "schema": ("admin.schema", "The JSON Schema of sweep files, for editors"),
        "redis-acl": (
            "admin.redis_acl",
            "ACL users for producers, workers, viewers and autoscalers",
        ),
        "archive": ("admin.archive", "A sweep as one file, and back"),
        "gc": ("admin.gc", "Remove what no sweep needs from HPQ_HOME"),
    },
}
WHERE = {name: spec for group in COMMANDS.values() for name, spec in group.items()}


_FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk


class Lazy(TyperGroup):
    """A group whose commands live in modules that are imported when used.

    Typer carries its own copy of click and names its types privately, hence `Any`.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(WHERE)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in WHERE:
            return None
        path, _, function = WHERE[cmd_name][0].partition(":")
        module = importlib.import_module(f"hpq_producer.commands.{path}")
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name)(getattr(module, function or cmd_name.replace("-", "_")))
        command: Any = get_command(alone)
        for param in command.params:
            param.secondary_opts = []  # no --no-once: what is off by default has no need of it
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in WHERE and not name.startswith("-"):
            close = get_close_matches(name, WHERE, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "`hpq --help` lists them"
            raise UserError(f"no command {name!r}; {hint}", code="command-unknown")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage("hpq", "[--debug] [--version] COMMAND …")
        formatter.write(f"\nhpq {__version__}: hyperparameter sweeps on your own GPUs.\n")
        for group, commands in COMMANDS.items():
            formatter.write(f"\n{group}\n")
            formatter.write_dl([(f"  {name}", line) for name, (_, line) in commands.items()])
        codes = ", ".join(f"{c.value} {c.name.lower().replace('_', ' ')}" for c in ExitCode)
        formatter.write(f"\nExit codes: {codes}.\n`hpq COMMAND --help` tells of each command.\n")
        formatter.write("`hpq --install-completion` lets the shell complete commands and ids.\n")

    def main(self, *args: Any, **more: Any) -> Any:
        """As click's, but what it finds wrong with the words is one line as all of hpq's errors."""
        words = more.get("args") or sys.argv[1:]
        self.as_json = (
            "--json" in words[: words.index("--")] if "--" in words else "--json" in words
        )
        try:
            code = super().main(*args, **{**more, "standalone_mode": False})
        except typer.Abort:
            code = self._say(UserError("nothing was done", code="declined"), ExitCode.SOME_FAILED)
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            where = getattr(getattr(error, "ctx", None), "command_path", "hpq")
            what = " ".join(error.format_message().split()).rstrip(".")
            code = self._say(UserError(f"{what}; `{where} --help` tells what it takes"))
        sys.exit(code if isinstance(code, int) else int(ExitCode.DONE))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except BrokenPipeError:  # `hpq results | head`
            # Here, since --help needs none of it.
            from hpq_producer.terminal.console import discard_stdout  # noqa: PLC0415

            discard_stdout()
            raise typer.Exit(int(ExitCode.DONE)) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _FULL:
                place = f" {error.filename}" if error.filename else ""
                error = UserError(
                    f"cannot write{place}: {error.strerror}; make room", code="disk-full"
                )
            if ctx.params.get("debug") or type(error).__module__.startswith("typer"):
                raise
            raise typer.Exit(self._say(error)) from None

    def _say(self, error: Exception, exit_code: ExitCode | None = None) -> int:
        """Print an error on stderr, with --json also on stdout; answer the exit code."""
        if not isinstance(error, HpqError):
            what = " ".join(f"{type(error).__name__}: {error}".split())
            text = f"a fault of hpq's own: {what} (hpq --debug … shows where)"
            error = HpqError(text, code="internal")
        for notice in error.notices:
            print(f"hpq: {notice}", file=sys.stderr)
        if self.as_json:
            print(json.dumps({"error": error.record()}, indent=2))
        return int(error.exit_code if exit_code is None else exit_code)


app = typer.Typer(
    cls=Lazy, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    """Hyperparameter sweeps on your own GPUs."""
    if version:
        typer.echo(f"hpq {__version__}")
    elif ctx.invoked_subcommand is None:
        importlib.import_module("hpq_producer.commands.inspect.overview").show_overview()


def main() -> None:
    """Run the command line; what hpq knows as an error is one line on stderr and an exit code."""
    hpq_process.overwrite()  # training code of this machine may run beside any command
    app(prog_name="hpq")
