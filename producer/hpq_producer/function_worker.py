"""`python -m hpq_producer.function_worker SWEEP --caller=FDS`: the worker of `hpq.agent`.

It becomes one worker process, bound to the sweep, without a supervisor: the caller is its parent.
"""

from __future__ import annotations

import json
import os
import sys

from hpq.errors import HpqError
from hpq_producer.commands.admin.worker import worker_environment


def main() -> None:
    """Resolve the sweep and the server, then become the worker; an error goes to the caller."""
    ref, caller = sys.argv[1:3]
    try:
        env, _ = worker_environment({**os.environ, "HPQ_PORT": ""}, ref)
    except HpqError as error:
        commands = int(caller.partition("=")[2].split(",")[0])
        os.write(commands, json.dumps({"over": str(error.notice)}).encode() + b"\n")
        sys.exit(int(error.exit_code))
    words = [sys.executable, "-P", "-m", "hpq_worker.consumer", "--until-over", caller]
    os.execve(sys.executable, words, env)


if __name__ == "__main__":
    main()
