"""An MCP server over hpq's command line: an agent plans, queues, follows and reads sweeps.

    python server.py DIR …

The sweep files of the agent are *.yaml below the directories; without one, below the current
directory. The server needs the package mcp, and the command hpq beside its Python or on PATH. It
sees the sweeps that `hpq ls` lists with the same HPQ_* variables.

An agent that may call `enqueue` can run any command on the workers: a sweep file names one, and so
does an override such as `command=[…]`.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from subprocess import DEVNULL
from typing import Annotated, Any

from anyio import run_process
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

PLACES = [str(Path(sys.executable).parent), *os.get_exec_path()]
HPQ = shutil.which("hpq", path=os.pathsep.join(PLACES)) or sys.exit("hpq is not on PATH")
ROOTS = [Path(word).resolve(strict=True) for word in sys.argv[1:] or ["."]]
if Path("/") in ROOTS:
    sys.exit("usage: server.py DIR …: name the directories of the sweep files")

server = MCPServer(
    "hpq",
    instructions="hpq runs hyperparameter sweeps on the user's own GPUs. Call plan before enqueue. "
    "Workers train what is queued; pass `needs_you` of status on to the user. An error ends with "
    "its id in brackets.",
)
READS = ToolAnnotations(read_only_hint=True)
ADDS = ToolAnnotations(destructive_hint=False, idempotent_hint=True)
ENDS = ToolAnnotations(destructive_hint=True, idempotent_hint=True)

File = Annotated[
    str, Field(description=f"Path of a sweep file: *.yaml below {' or '.join(map(str, ROOTS))}.")
]
Overrides = Annotated[
    list[str],
    Field(
        description="Values that replace the file's, such as run_cap=8. They can name any command."
    ),
]
Sweep = Annotated[str, Field(description="Id of a sweep.")]
Count = Annotated[int, Field(description="Number of trials.", ge=1)]


async def hpq(*words: str, operand: str) -> Any:
    """Run a command and return the JSON that it prints; None if it prints nothing.

    Raises:
        ToolError: hpq refused. The text is hpq's own, with its id.
    """
    line = [HPQ, *words, "--", operand]  # an operand is no option, whatever an agent writes
    done = await run_process(line, stdin=DEVNULL, check=False)  # our stdin has the agent's requests
    answer = json.loads(done.stdout or "null")
    if done.returncode and "sweep" not in (answer or ()):  # `wait` has data and an exit code
        raise ToolError(done.stderr.decode().strip())
    return answer


def checked(file: str) -> str:
    """Return the path of a sweep file, with links followed.

    Raises:
        ToolError: the file is no YAML, or not below a root.
    """
    for root in ROOTS:
        path = (root / file).resolve()
        if path.suffix in (".yaml", ".yml") and path.is_relative_to(root) and path.is_file():
            return str(path)
    where = " or ".join(map(str, ROOTS))
    raise ToolError(f"{file}: no *.yaml file below {where} [file-not-found]")


def replaced(overrides: list[str]) -> list[str]:
    """Return the options of a sweep file's overrides."""
    return [f"--set={one}" for one in overrides]


@server.tool(annotations=READS)
async def plan(file: File, overrides: Overrides = ()) -> dict[str, Any]:
    """Check a sweep file; return its number of trials, the first ones and warnings."""
    return await hpq("plan", "-o", "json", *replaced(overrides), operand=checked(file))


@server.tool(annotations=ADDS)
async def enqueue(file: File, overrides: Overrides = ()) -> dict[str, Any]:
    """Queue the trials of a sweep file; return the sweep's id.

    If the same file, seed and code are queued already, return that sweep (`new` is false).
    """
    return await hpq("enqueue", "-o", "json", *replaced(overrides), operand=checked(file))


@server.tool(annotations=READS)
async def status(sweep: Sweep, wait_s: float = 0) -> dict[str, Any]:
    """Wait at most `wait_s` seconds for a sweep's end; return its state and counts.

    `needs_you` has what a user must do, `verdict` whether the best trial's lead is more than noise,
    `next` useful commands. Your client may end a call that waits for minutes.
    """
    return await hpq("wait", "-o", "json", f"--timeout={wait_s}", operand=sweep)


@server.tool(annotations=READS)
async def best(sweep: Sweep, top: Count = 1) -> list[dict[str, Any]]:
    """Return the best trials, the best first: `param` has the parameters."""
    found = await hpq("best", "-o", "json", f"--top={top}", operand=sweep)
    return found if isinstance(found, list) else [found]


@server.tool(annotations=READS)
async def results(sweep: Sweep, where: str = "", top: Count = 50) -> list[dict[str, Any]]:
    """Return trials, the best result first; `where` selects some: 'lr > 0.1', 'state == failed'."""
    matching = [f"--where={where}"] if where else []
    return await hpq("results", "-o", "json", f"--top={top}", *matching, operand=sweep)


@server.tool(annotations=ENDS)
async def stop(sweep: Sweep) -> dict[str, Any]:
    """Cancel the queued trials of a sweep; running ones finish. Return the sweep's status."""
    await hpq("stop", "--yes", operand=sweep)
    return await status(sweep)


@server.tool(annotations=ENDS)
async def cancel(sweep: Sweep) -> dict[str, Any]:
    """End a sweep now, with its running trials. Return the sweep's status."""
    await hpq("cancel", "--yes", operand=sweep)
    return await status(sweep)


if __name__ == "__main__":
    server.run()
