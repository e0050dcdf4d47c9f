"""`python -m hpq_producer.agent_worker SWEEP`: the worker of `hpq.agent`.

It becomes one worker process, bound to the sweep, without a supervisor: the caller is its parent.
That process reads the configuration on stdin, which hpq.agent_loop wrote; an error here reads it.
"""

from __future__ import annotations

import json
import os
import sys

from hpq.errors import HpqError
from hpq_producer.commands.machines.worker import worker_environment


def main() -> None:
    """Resolve the sweep and the server, then become the worker; an error goes to the caller."""
    try:
        env, _ = worker_environment({**os.environ, "HPQ_PORT": ""}, sys.argv[1])
    except HpqError as error:
        commands = json.loads(sys.stdin.readline())["caller"]["commands"]
        os.write(commands, json.dumps({"over": str(error.notice)}).encode() + b"\n")
        sys.exit(int(error.exit_code))
    os.execve(sys.executable, [sys.executable, "-P", "-m", "hpq_worker.consumer"], env)


if __name__ == "__main__":
    main()
