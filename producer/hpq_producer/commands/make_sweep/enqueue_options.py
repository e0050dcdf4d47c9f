"""The options that `enqueue`, `run` and, for the most part, `plan` share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option

from hpq.errors import UserError
from hpq.search.samplers import LIMIT
from hpq_producer.actions.set_limits import check_tags
from hpq_producer.enqueue.prepare import PreparedSweep, prepare
from hpq_producer.enqueue.reuse import Reuse
from hpq_producer.sweepfile.load import load

Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """The options of a command that takes a sweep file.

    Each field is one option: its type, its help text in `Annotated`, and its default.

    Raises:
        UserError: options exclude each other, or a --tag is malformed.
    """

    file: Annotated[Path, Argument(help="Sweep file.", show_default=False)]
    sets: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a value of the file, e.g. run_cap=8. Repeatable.",
        ),
    ] = None
    count: Annotated[
        int | None, Option(help="Run at most N trials (run_cap). Default: from the file.")
    ] = None
    name: Annotated[str | None, Option(help="Name of the sweep. Default: from the file.")] = None
    code: Annotated[
        str | None,
        Option(metavar="DIR", help="Directory of the code; hpq sends a snapshot to the workers."),
    ] = None
    live: Annotated[bool, Option(help="Run the code in your directory, with later edits.")] = False
    force: Annotated[bool, Option(help="Allow more than 100,000 trials.")] = False
    new: Annotated[bool, Option(help="Create a new sweep even if an identical one exists.")] = False
    tags: Annotated[
        list[str] | None, Option("--tag", help="Label for `hpq ls --tag`. Repeatable.")
    ] = None
    reuse: Annotated[
        bool,
        Option(help="Copy results of older sweeps of the same code in Redis; train only the rest."),
    ] = False
    any_code: Annotated[
        bool, Option(help="Let --reuse copy results of other versions of the code, too.")
    ] = False

    def __post_init__(self) -> None:
        check_tags(self.tags or ())
        if self.any_code and not self.reuse:
            raise UserError("--any-code needs --reuse; add --reuse")

    @property
    def reused_sweeps(self) -> Reuse | None:
        """The older sweeps whose results --reuse takes."""
        if not self.reuse:
            return None
        return Reuse.ANY_CODE if self.any_code else Reuse.SAME_CODE

    def prepare(self, *, trains_here: bool = False) -> PreparedSweep:
        """Read the sweep file with the options over it, and find its code, as `prepare`.

        Raises:
            UserError: a --set has no '=', the code is missing, or the file is invalid.
        """
        overrides: dict[str, str] = {}
        for text in self.sets or ():
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise UserError(f"--set {text}: write KEY=VALUE, e.g. --set run_cap=8")
            overrides[key] = value
        spec = load(
            self.file,
            overrides=overrides,
            count=self.count,
            name=self.name,
            limit=None if self.force else LIMIT,
        )
        return prepare(spec, self.file, self.code, is_live=self.live, trains_here=trains_here)


def enqueue_options(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Make the fields of EnqueueOptions options of a command, except those in `without`.

    The command's first parameter receives them as one EnqueueOptions; its other parameters are
    options of its own. typer reads the options from a function's signature: that of the function
    returned has a parameter for each field, then the command's own.
    """
    types = get_type_hints(EnqueueOptions, include_extras=True)
    shared = [
        Parameter(
            field.name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in fields(EnqueueOptions)
        if field.name not in without
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            options = EnqueueOptions(**{option.name: values.pop(option.name) for option in shared})
            command(options, **values)

        _, *own = signature(command, eval_str=True).parameters.values()
        with_options.__signature__ = Signature([*shared, *own])  # type: ignore[attr-defined]
        return with_options

    return decorate
