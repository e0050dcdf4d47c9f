"""A lab: a Redis server, commands, and workers as real processes, all ended after the test.

Every process of a lab has LAB_ID in its environment, so that processes in new sessions are found,
too. Training code in these tests needs no torch and is controlled by files, not by time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialId, TrialView
from hpq.filestore.stores import regular
from hpq.notice import Notice
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.commands import HPQ, run_hpq, stdout_of
from tests.support.constants import DEADLINE_S
from tests.support.desk import Done, run_here
from tests.support.server import Server

STEERED = """
    import os, time
    from pathlib import Path

    HERE = Path.cwd()  # the user's own directory, also of a trainer

    def mark(name):  # whole at once: a test never reads half a line
        draft = HERE / f".{name}.{os.getpid()}"
        draft.write_text(str(os.getpid()))
        draft.rename(HERE / name)

    def train(params, trial):
        print(f"trial {trial.id} attempt {trial.attempt} pid {os.getpid()}")
        trial.report({"loss": float(params["x"])}, step=1)
        mark(f"began-{params['x']}-{trial.attempt}")
        while not (HERE / "go").exists():
            if trial.should_stop:
                print("told to stop")
                return None
            time.sleep(0.01)
        trial.report({"loss": float(params["x"])}, step=2)
        return {"loss": params["x"] / 10}
"""


END_LEASE = """
    if redis.call('HGET', KEYS[1], 'attempt') == ARGV[1] then
      redis.call('ZADD', KEYS[2], 'XX', 1, ARGV[2])
    end
"""


# Commands that train, or that become a program which does.
_TRAINING = ("exec", "join", "run", "try", "worker")


class Lab:
    """The directory, server and processes of one test, or of the tests of one file."""

    def __init__(self, folder: Path, server: Server, url: str = "") -> None:
        self.folder, self.server = folder, server
        self.home = folder / "home"
        self.code = folder / "code"
        self.code.mkdir(parents=True)
        self.mark = secrets.token_hex(8)
        self.redis: Redis = connect(url or server.url)
        self.keys = Keys("hpq")
        self.reader = StoreReader(self.redis, self.keys, 12_000)  # HPQ_LEASE_S
        self.workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._sweeps = itertools.count(1)
        self._tests = itertools.count(1)
        self.env = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
            "LAB_ID": self.mark,
            # As in an activated environment of hpq: programs run in it.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HPQ_REDIS_URL": url or server.url,
            "HPQ_HOME": str(self.home),
            "HPQ_USER": "tester",
            "HPQ_LEASE_S": "12",  # a worker without CPU time for longer loses its trial
            "HPQ_REAP_S": "0.3",
            "HPQ_GRACE_S": "20",  # only what ignores SIGTERM takes them
            "HPQ_CHECKPOINT_QUIET_S": "0.3",  # checkpoints of these tests have one file
            "CUDA_VISIBLE_DEVICES": "",
        }

    # --- actions of a user --------------------------------------------------------------------

    def write(self, name: str, text: str) -> Path:
        """Write a file in the directory of the user's code."""
        path = self.code / name
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end: in this process if that can be, and it does not train."""
        if words[0] in _TRAINING or not _can_run_here(self.env | env):
            return run_hpq(words, self.code, self.env | env, DEADLINE_S)
        return self.here(*words, **env)

    def here(self, *words: object, **env: str) -> Done:
        """Run a command to its end in this process."""
        return run_here(words, self.code, self.env | env)

    def ok(self, *words: object, **env: str) -> str:
        """Run a command that must succeed; return its stdout."""
        return stdout_of(self.hpq(*words, **env))

    def enqueue(self, text: str, *flags: str, **env: str) -> str:
        """Enqueue a sweep file; return the sweep's id."""
        path = self.write(f"sweep-{next(self._sweeps)}.yaml", text)
        return self.ok("enqueue", path, *flags, **env).strip()

    def steered(self, count: int, more: str = "") -> str:
        """Enqueue x = 1 … count for a trainer that waits in each trial for the file `go`."""
        if not (self.code / "steered.py").exists():
            self.write("steered.py", STEERED)
        values = list(range(1, count + 1))
        return self.enqueue(
            f"trainer: steered:train\nmethod: grid\nmetric: {{name: loss, goal: minimize}}\n"
            f"parameters: {{x: {{values: {values}}}}}\n{more}"
        )

    def worker(self, n: int = 1, *flags: str, **env: str) -> subprocess.Popen[bytes]:
        """Start `hpq worker --workers n` in a session of its own.

        The command runs in this process, if that can be, until it becomes the supervisor.
        """
        log = self.folder / f"worker-{len(self._logs)}.log"
        self._logs.append(log)
        words, environ = [HPQ, "worker", "--workers", str(n), *flags], self.env | env
        with log.open("w+b") as file:
            if _can_run_here(environ):
                done = run_here(words[1:], self.folder, environ)
                assert done.becomes, done.stderr
                words, environ = done.becomes
                file.write(done.stderr.encode())
                file.flush()
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.workers.append(process)
        return process

    @contextlib.contextmanager
    def one_test(self) -> Iterator[Lab]:
        """Lend the lab of a file to one test: give it an empty directory, end what it leaves."""
        self.code = self.folder / f"code-{next(self._tests)}"
        self.code.mkdir()
        env, workers = dict(self.env), list(self.workers)
        yield self
        self.env = env
        for worker in self.workers[len(workers) :]:
            worker.terminate()
        for worker in self.workers[len(workers) :]:
            worker.wait()
        self.workers = workers
        for sid in self.reader.sweeps.ids():
            if not self.reader.sweeps.get(sid).state.is_over:
                self.ok("cancel", sid, "--yes", "--force")
        self.wait_until(lambda: not self.redis.zcard(self.keys.leases), "the end of what ran")

    def go(self) -> None:
        """Let all steered trials finish."""
        (self.code / "go").touch()

    # --- observations -------------------------------------------------------------------------

    def log(self, worker: int | None = None) -> str:
        """Return the log of all workers, or of the Nth that was started."""
        logs = self._logs if worker is None else [self._logs[worker]]
        return "\n".join(path.read_text("utf-8", "replace") for path in logs if path.exists())

    def wait_until(
        self,
        is_so: Callable[[], object],
        what: str,
        deadline_s: float = DEADLINE_S,
        *,
        every_s: float = 0.02,
    ) -> None:
        """Poll until a condition is true; at the deadline, fail with the workers' log."""
        until = time.monotonic() + deadline_s
        while not is_so():
            if time.monotonic() > until:
                pytest.fail(f"not within {deadline_s:g} s: {what}\n{self.log()[-6000:]}")
            time.sleep(every_s)

    def wait_for(self, name: str) -> int:
        """Wait for a file of the steered trainer; return the pid in it."""
        path = self.code / name
        self.wait_until(path.exists, f"the file {name}")
        text = path.read_text("utf-8")
        return int(text) if text.isdigit() else 0

    def wait_over(self, sid: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a sweep ends, and audit it."""
        is_over = lambda: self.reader.sweeps.get(sid).state.is_over  # noqa: E731
        self.wait_until(is_over, f"the end of {sid}", deadline_s, every_s=0.1)
        audit(self.reader, sid)

    def audit(self, sid: str) -> None:
        """Audit an ended sweep."""
        audit(self.reader, sid)

    def trial(self, sid: str, number: int = 1) -> TrialView:
        """Read a trial."""
        return self.reader.trials.get(TrialId(sweep=sid, number=number))

    def end_lease(self, sid: str, number: int = 1) -> None:
        """Expire the lease of a running trial, as if its worker had stopped sending heartbeats.

        Waits until another worker has requeued the trial, so that no test waits for a lease.
        """
        trial = self.trial(sid, number)
        keys = (self.keys.trial(trial.id), self.keys.leases)

        def is_requeued() -> bool:
            self.redis.eval(END_LEASE, 2, *keys, trial.attempt, f"{sid}/{number}")
            return any(
                (e.what, e.trial, e.attempt) == ("requeued", number, trial.attempt)
                for e in self.reader.events.read(sid)
            )

        self.wait_until(is_requeued, f"{sid}/{number} to be requeued")

    def events(self, sid: str, number: int = 1) -> list[str]:
        """Return the events of a trial in order."""
        return [e.what for e in self.reader.events.read(sid) if e.trial == number]

    def has_claimed(self, sid: str, number: int = 1, attempt: int = 1) -> bool:
        """Return True once this attempt was claimed."""
        return any(
            e.what == "claimed" and (e.trial, e.attempt) == (number, attempt)
            for e in self.reader.events.read(sid)
        )

    def refusal(self, sid: str) -> Notice:
        """Wait until a live worker refuses a sweep; return why.

        Why is read once: a worker without CPU time for a lease is not live at a second look.
        """
        found: list[Notice] = []

        def refuses() -> bool:
            live = self.reader.workers.live()
            found.extend(w.refuses[sid] for w in live if sid in w.refuses)
            return bool(found)

        self.wait_until(refuses, f"a worker to refuse {sid}")
        return found[0]

    def printed(self, sid: str, number: int = 1) -> str:
        """Return the log of a trial."""
        return self.reader.trials.log(TrialId(sweep=sid, number=number))[0].decode(
            "utf-8", "replace"
        )

    def processes(self, pattern: str = "") -> dict[int, str]:
        """Return the live processes of this lab with a matching command: {pid: command line}."""
        found: dict[int, str] = {}
        wanted = f"LAB_ID={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environ, line = environ_and_command(entry)
                if wanted in environ.split(b"\0") and re.search(pattern, line):
                    found[int(entry.name)] = line
        return found

    def wait_for_no_process(self, pattern: str = "") -> None:
        """Wait until no process of this lab has a matching command."""
        what = f"the end of the processes {pattern or 'of the lab'}"
        self.wait_until(lambda: not self.processes(pattern), what, every_s=0.1)

    def kill(self, pids: Iterable[int]) -> None:
        """kill -9 of several processes at once: none of them sees the end of another.

        All are stopped first. A worker that saw the end of its supervisor would return its trial.
        """
        doomed = list(pids)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def parent(self) -> int:
        """Return the pid of the only worker process (neither supervisor nor runner)."""
        (pid,) = self.processes(r"-m hpq_worker\.consumer")
        return pid

    def end(self) -> None:
        """End all processes, and assert that none is left."""
        for signalled in (signal.SIGTERM, signal.SIGTERM):
            for worker in self.workers:
                if worker.poll() is None:
                    worker.send_signal(signalled)
            for left in self.processes(r"-m hpq_worker "):  # by `hpq run`, without a parent
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signalled)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # `wait_until` has the log
                for worker in self.workers:
                    worker.wait(DEADLINE_S)  # costs less than a look at all processes
            self.wait_for_no_process()
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for worker in self.workers:
                worker.wait()
            self.redis.close()


MakeLab = Callable[..., Lab]


def _can_run_here(env: Mapping[str, str]) -> bool:
    """Return False for a command that imports other code, or uses a private server.

    Such a server runs until the processes that used it have ended.
    """
    is_same_code = env.get("PYTHONPATH", "") == os.environ.get("PYTHONPATH", "")
    return is_same_code and bool(env.get("HPQ_REDIS_URL"))


def files_of(store: Path, sid: str) -> list[str]:
    """List a sweep's files in a store, even while a worker removes some of them.

    Names omit the suffix that a claim adds to the attempt's number.
    """
    return sorted(bare(name) for name, _ in regular(store / "hpq" / sid))


def environ_and_command(process: Path) -> tuple[bytes, str]:
    """Return the environment and the command line of a directory of /proc.

    The kernel shows both as empty while a process starts its program; they are read again then.
    Raises OSError for a process that has ended, a kernel thread and one of another user.
    """
    while True:
        os.readlink(process / "exe")
        command = (process / "cmdline").read_bytes()
        environ = (process / "environ").read_bytes()
        if command and command == (process / "cmdline").read_bytes():
            return environ, command.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def bare(path: str) -> str:
    """Return a path in a store without the suffix of the attempt's number."""
    return re.sub(r"(/\d+)-[a-z0-9]{6}/", r"\1/", path)


def audit(reader: StoreReader, sid: str) -> None:
    """Assert that `hpq audit` finds no error in an ended sweep."""
    found = audit_sweep(reader, sid)
    assert not found.violations, found.violations
    assert not found.open, found
    assert reader.sweeps.get(sid).state in (SweepState.FINISHED, SweepState.CANCELLED)
