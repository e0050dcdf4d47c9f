"""An agent that adds trials beside TPE, by the tools of `hpq mcp`; `propose` stands for a model.

Start workers here (`hpq worker`), then: python agent.py. It needs the extras mcp and bayes: in the
checkout of hpq, `pip install '.[mcp,bayes]'`.
"""

import asyncio
import json
import math
import os
import random
from pathlib import Path

from mcp import Client, StdioServerParameters, stdio_client

TRIALS = 12  # that the agent may add, replicates included
EVERY = 4  # results between two of its proposals
HERE = Path(__file__).parent
Best = list[dict]
Params = dict[str, float]


def propose(best: Best, turn: int) -> Params:
    """Return the next parameters, near one of the best trials and nearer each turn.

    A real agent gives `best` to its model, and parses the answer.
    """
    rng = random.Random(turn)
    near = best[turn % len(best)]["param"]
    width = 0.5 ** (turn / 2)
    lr = 10 ** (math.log10(near["lr"]) + rng.gauss(0, 0.5 * width))
    momentum = near["momentum"] + rng.gauss(0, 0.2 * width)
    return {"lr": min(max(lr, 1e-4), 1.0), "momentum": min(max(momentum, 0.0), 0.99)}


async def call(client: Client, tool: str, **arguments: object) -> dict:
    """Return the data of a tool; end with the error of one that refuses."""
    answer = await client.call_tool(tool, arguments)
    text = answer.content[0].text
    if answer.is_error:
        raise SystemExit(text)
    return json.loads(text)


async def search(client: Client) -> None:
    """Queue the sweep, add trials while TPE suggests others, and print who won."""
    plan = await call(client, "plan", file="sweep.yaml")
    print(f"TPE suggests {plan['trials']} trials, the agent {TRIALS}")
    sid = (await call(client, "enqueue", file="sweep.yaml"))["sweep"]
    mine: set[int] = set()
    told: set[str] = set()
    seen, turn, cursor, is_over = 0, 0, "", False
    while not (is_over and len(mine) >= TRIALS):
        status = await call(client, "status", sweep=sid, since=cursor, wait_s=1)
        cursor = status["cursor"]
        is_over = status["state"] in ("finished", "cancelled")
        for need in {one["message"] for one in status.get("needs_you", [])} - told:
            told.add(need)
            print(f"for you: {need}")
        if len(mine) >= TRIALS or not (is_over or status["finished"] >= seen + EVERY):
            continue
        seen = status["finished"]
        best = (await call(client, "best", sweep=sid))["trials"]
        params, turn = propose(best, turn), turn + 1
        added = (await call(client, "add", sweep=sid, sets=[params]))["added"]
        print(f"added {added}: {params}, near trial {best[0]['trial']}")
        mine.update(added)
        is_over = False  # the sweep is open again
    best = await call(client, "best", sweep=sid)
    for trial in best["trials"]:
        who = "the agent" if trial["trial"] in mine else "TPE"
        print(f"trial {trial['trial']}, of {who}: loss={trial['objective']:.4f} {trial['param']}")
    print(f"verdict: {best['verdict']}")


async def main() -> None:
    """Start `hpq mcp` for this directory, and search."""
    words = ["mcp", str(HERE), "--allow-writes"]
    server = StdioServerParameters(command="hpq", args=words, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        await search(client)


if __name__ == "__main__":
    asyncio.run(main())
