"""A Python that imports modules once and forks a process for each program (`preload: [torch]`).

`PYTHON preload_server.py FD MODULE …` runs in the Python of the programs: standard library only. It
writes {"refused": reason or ""} to the socket FD. For each request (preload.py has its keys) the
forked process writes {"pid": …}, and the server {"status": …} at its end.
"""

from __future__ import annotations

import gc
import importlib
import json
import operator
import os
import socket
import sys
import types
from typing import Any


def _entries() -> list[str]:
    """Return the entries of PYTHONPATH as Python writes them to sys.path."""
    return [os.path.abspath(e) for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]


def _refusal(modules: list[str]) -> str:
    """Import the modules; return why this process must not fork programs, or ""."""
    if sys.platform != "linux" or sys.version_info < (3, 9):
        return "it needs Linux and Python 3.9"
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # a module may also call sys.exit
            return f"import {name}: {type(error).__name__}: {error}"
    if imported := {"wandb", "hpq"} & sys.modules.keys():  # they read the trial's environment
        return f"the modules import {max(imported)}, which each trial must import itself"
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "libcuda.so" in maps.read():
            return "the modules open the CUDA driver, which a forked process cannot use"
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    # OpenBLAS ended its threads before the fork, and starts them again when it needs them.
    if len(os.listdir("/proc/self/task")) > 1:
        return "the modules start threads, which a forked process does not have"
    return ""


def _serve(channel: socket.socket, modules: list[str]) -> dict[str, Any]:
    """Answer requests; return the request in a forked process, never in the server."""

    def answer(name: str, value: Any) -> None:
        channel.sendall(json.dumps({name: value}).encode() + b"\n")

    requests = channel.makefile("r", encoding="utf-8")
    answer("refused", _refusal(modules))
    gc.freeze()  # else each program's collections, above all the last, copy the modules' pages
    for line in requests:
        if (pid := os.fork()) == 0:
            os.setsid()  # before the runner may send a signal to its group
            answer("pid", os.getpid())
            requests.close()
            channel.close()
            return dict(json.loads(line))
        # Reaped after the answer: if this process is killed before it, the runner gets the status.
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert end  # it is None with WNOHANG only
        answer("status", end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)
        os.waitpid(pid, 0)
    os._exit(0)


def _enter(argv: list[str], env: dict[str, str], cwd: str, started: dict[str, str]) -> None:
    """Take on what a new process that imports the modules would have."""
    os.chdir(cwd)  # before any path is resolved: the directory of the first trial may be gone
    path = [entry for entry in sys.path if entry not in _entries()]
    # A trial's own variables, which differ; of the others the modules may have changed some.
    os.environ.update({n: v for n, v in env.items() if started.get(n) != v})
    sys.argv = argv
    sys.orig_argv = [sys.executable, *argv]
    sys.path[:] = _entries() + path
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(argv[0])))
    importlib.invalidate_caches()
    if process := sys.modules.get("multiprocessing.process"):
        vars(process)["ORIGINAL_DIR"] = cwd
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    # Python's own generator does this by itself. Those of GPUs do not exist yet.
    if random := sys.modules.get("numpy.random"):
        random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def _run(path: str) -> None:
    """Run a program as `python FILE` does: as __main__, with the same tracebacks and statuses."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(__file__=path, __cached__=None, __builtins__=sys.modules["builtins"])
    try:
        with open(path, "rb") as opened:
            source = opened.read()
        exec(compile(source, path, "exec", dont_inherit=True), vars(main))  # noqa: S102 - the user's program
    except BaseException:  # shown without the three frames of this file
        hook, inner = sys.excepthook, operator.attrgetter("tb_next.tb_next.tb_next")
        sys.excepthook = lambda kind, e, tb: hook(kind, e.with_traceback(inner(tb)), inner(tb))
        raise


def main() -> None:
    """Serve; in each forked process, run a program."""
    own = os.path.dirname(os.path.realpath(__file__))  # where Python looks first for modules
    sys.path[:] = [entry for entry in sys.path if entry != own]
    started = dict(os.environ)
    request = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    _enter(request["argv"], request["env"], request["cwd"], started)
    _run(os.path.abspath(request["argv"][0]))


if __name__ == "__main__":
    main()
