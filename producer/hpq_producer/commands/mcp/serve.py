"""`hpq mcp`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError
from typer import Argument, Option

from hpq import __version__
from hpq.errors import HpqError, UserError
from hpq.extras import library
from hpq.notice import print_message

_SKILL = Path(__file__).with_name("SKILL.md")
_INSTRUCTIONS = (
    "hpq runs hyperparameter sweeps on the user's own GPUs. Call plan before enqueue. No tool"
    " starts workers, which train what is queued: pass `needs_you` of status on to the user. An"
    " answer has at most 4 kB and says how to read more. An error has an id, `code`."
)


def mcp(
    root: Annotated[
        Path, Argument(metavar="DIR", help="Directory of the sweep files and their code.")
    ] = Path("."),
    allow_writes: Annotated[
        bool, Option("--allow-writes", help="Let the agent enqueue files below DIR, add, and stop.")
    ] = False,
    skill: Annotated[
        bool, Option("--skill", help="Print a skill for agents with a shell, and end.")
    ] = False,
) -> None:
    """Serve the Model Context Protocol to an agent, on stdin and stdout.

    The agent sees your sweeps: list, plan, status, results, best, show and logs. With
    --allow-writes it also enqueues sweep files below DIR whose code is below DIR, adds trials
    inside the space of a sweep, and stops sweeps.

    Examples:
      claude mcp add hpq -- hpq mcp ~/experiments
      hpq mcp ~/experiments --allow-writes
      mkdir -p .claude/skills/hpq && hpq mcp --skill > .claude/skills/hpq/SKILL.md
    """
    if skill:
        print(_SKILL.read_text("utf-8"), end="")
        return
    place = root.expanduser().resolve()  # no shell expands the words of a client's file
    if not place.is_dir():
        raise UserError(f"{root} is not a directory; name one", code="file-not-found")
    if place == Path(place.anchor):
        raise UserError("all files are below /; name the directory of the sweep files")
    server = _server(place, allow_writes)
    os.chdir(place)  # programs are searched for there first, as by `hpq enqueue` in DIR
    if sys.stdin.isatty():
        text = "hpq mcp serves an agent on stdin; register it: claude mcp add hpq -- hpq mcp DIR"
        print_message(text)
    server.run("stdio")


def _server(place: Path, may_write: bool) -> Any:
    """Return a server of the SDK with all tools.

    Raises:
        UserError: the SDK is not installed.
    """
    sdk = library("mcp.server", "hpq mcp", "mcp")
    types = library("mcp.types", "hpq mcp", "mcp")
    makes = library("mcp.server.mcpserver.tools", "hpq mcp", "mcp").Tool.from_function
    exceptions = library("mcp.server.mcpserver.exceptions", "hpq mcp", "mcp")
    rejection, crash = exceptions.ToolError, exceptions.UnexpectedToolError
    base: Any = sdk.MCPServer
    # Here, since they load the rules of sweep files.
    from hpq_producer.commands.mcp.root import Root  # noqa: PLC0415
    from hpq_producer.commands.mcp.tools import Tools  # noqa: PLC0415

    class Server(base):  # type: ignore[misc]  # the extra may be absent
        """A server whose refusals of a call are errors of hpq, in an answer of at most 4 kB."""

        async def call_tool(self, name: str, arguments: Any, context: Any = None) -> Any:
            """Answer a call that the SDK rejects as one with the id `usage`."""
            try:
                return await super().call_tool(name, arguments, context)
            except crash:
                raise
            except rejection as error:
                return _refused(types, UserError(_reason(error)))

    tools = Tools(Root(place), may_write)
    reads = types.ToolAnnotations(read_only_hint=True)
    enqueues = types.ToolAnnotations(destructive_hint=False, idempotent_hint=True)
    adds = types.ToolAnnotations(destructive_hint=False)  # `count` typed twice adds twice
    ends = types.ToolAnnotations(destructive_hint=True, idempotent_hint=True)
    served = [
        *(_tool(makes, types, tool, reads) for tool in tools.reading()),
        _tool(makes, types, tools.enqueue, enqueues),
        _tool(makes, types, tools.add, adds),
        _tool(makes, types, tools.stop, ends),
    ]
    return Server("hpq", version=__version__, instructions=_INSTRUCTIONS, tools=served)


def _tool(makes: Callable[..., Any], types: Any, tool: Callable[..., str], hints: Any) -> Any:
    """Return a tool of the SDK, which rejects arguments that the function does not have."""

    @wraps(tool)
    def call(*args: Any, **values: Any) -> Any:
        """Return the answer; an error of hpq is one with its id."""
        try:
            return tool(*args, **values)
        except HpqError as error:
            return _refused(types, error)

    name = tool.__name__.removesuffix("_sweeps")  # `list` would hide Python's own
    made = makes(call, name=name, annotations=hints, structured_output=False)
    base: Any = made.fn_metadata.arg_model

    class Arguments(base):  # type: ignore[misc]  # as above
        """The arguments of the tool; the SDK's own class ignores unknown ones."""

        model_config = {"extra": "forbid"}  # noqa: RUF012  # as pydantic reads it

    made.fn_metadata.arg_model = Arguments
    made.parameters["additionalProperties"] = False
    return made


def _refused(types: Any, error: HpqError) -> Any:
    from hpq_producer.commands.mcp.answer import refusal  # noqa: PLC0415

    content = [types.TextContent(type="text", text=refusal(error))]
    return types.CallToolResult(content=content, is_error=True)


def _reason(error: Exception) -> str:
    """Return why the SDK rejects a call: an unknown tool, or arguments that do not fit."""
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return str(error)
    rows = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in cause.errors())
    return "; ".join(rows)
