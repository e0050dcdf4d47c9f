"""`python -m tests.chaos --trials N`: run sweeps under random faults, then audit them.

Processes are killed, stopped, terminated and starved, connections cut, replies lost, disks filled,
Redis killed and filled, and its scripts flushed. Each trial appends its result to a log outside
hpq, with which every result is compared. At the end no process and no claim is left. The seed and
every fault are printed, then the tables of docs/results/evidence.md. A test runs the short form.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redis.exceptions import RedisError

from hpq.domain.trial import TrialState
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq_worker.process.process_tree import descendants
from tests.support.constants import DEADLINE_S
from tests.support.lab import Lab
from tests.support.proxy import Proxy
from tests.support.server import Server, find_server

# One write appends a whole line, so that trials of many processes share the log.
NOTE = """
    import os, random, sys, time

    def result(trial, attempt, x):
        value = x + random.random()
        log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{{trial}} {{attempt}} {{x!r}} {{value!r}}\\n".encode())
        os.close(log)
        return value
"""
TRAINER = """
    def train(params, trial):
        for step in range(1, 6):
            trial.report({{"loss": params["x"] / step}}, step=step)
            time.sleep({seconds} / 5)
        return {{"loss": result(trial.id, trial.attempt, params["x"])}}
"""
PROGRAM = """
    time.sleep({seconds})
    x = json.loads(sys.argv[1].partition("=")[2])
    print(f"loss={{result(os.environ['HPQ_TRIAL_ID'], os.environ['HPQ_ATTEMPT'], x)!r}}")
"""
METRIC = "metric: {name: loss}\nretries: 100\n"
GRID = METRIC + "method: grid\nparameters: {x: {values: %s}}\n"
KINDS: dict[str, Callable[[int], str]] = {
    "trainer": lambda n: "trainer: quick:train\n" + GRID % list(range(1, n + 1)),
    "program": lambda n: "program: quick_program.py\npreload: [json]\n" + GRID % [*range(1, n + 1)],
    "bayes": lambda n: (
        f"trainer: quick:train\nresident: true\n{METRIC}method: bayes\nsampler: tpe\n"
        f"run_cap: {n}\nparameters: {{x: {{min: 1.0, max: 9.0}}}}\n"
    ),
}
PROCESSES = {
    "worker": r"-m hpq_worker\.consumer",
    "runner": r"-m hpq_worker\.runner",
    "supervisor": r"worker --workers",
    "suggester": r"-m hpq_worker\.suggest",
    "preload server": r"preload_server\.py",
}
SCRIPTS = ("claim", "beat", "commit", "release", "presence", "reap", "suggest")
ENV = {
    "HPQ_LEASE_S": "2",
    "HPQ_GRACE_S": "5",
    "HPQ_LOST_MAX": "50",  # here a healthy trial loses its worker often
}
DISK_MIB = 64
# Counts of faults, and names of workers that were killed: hpq drops its own after an hour.
NAMES = {
    "hpq:counters",
    "hpq:workers",
    "hpq:q:default:idle",
    "rq:workers",
    "rq:workers:hpq:hpq:default",
    "rq:queue:hpq:hpq:default",  # a ticket that no worker had popped when the last one ended
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of a run; `every_s` is the mean time between two faults, `seconds` how long."""

    seed: int
    trials: int = 300
    sweep_trials: int = 100
    trial_s: float = 1.0
    workers: int = 4
    seconds: float = 1_200.0
    every_s: float = 1.0
    is_full: bool = False  # Redis is at its maxmemory while half of the workers have a trial


class Chaos:
    """One run of a plan in a lab; workers connect through the proxy."""

    def __init__(self, lab: Lab, plan: Plan, say: Callable[[str], None]) -> None:
        self.lab, self.plan, self.say = lab, plan, say
        self.rng = random.Random(plan.seed)
        self.proxy = Proxy(str(lab.server.socket))
        self.began = time.monotonic()
        self.undo: list[tuple[float, Callable[[], object]]] = []  # when a fault ends, and how
        self.blows: Counter[str] = Counter()
        self.full: Counter[bool] = Counter()  # how often Redis was found at its maxmemory, and not
        self.rows: list[str] = []  # of the table of sweeps
        self.values = lab.folder / "values.log"
        self.faults: list[Callable[[], None]] = [
            self.kill_one, self.kill_one, self.end_fleet, self.end_stopped, self.stop, self.stop,
            self.starve, self.starve, self.cut, self.lose, self.hole, self.restart_redis,
            self.flush,
        ]  # fmt: skip
        if not plan.is_full:
            self.faults.append(self.fill_redis)

    def run(self) -> None:
        """Run one sweep after another until all trials ran; audit each, then what is left."""
        self.say(f"seed {self.plan.seed}: {self.plan}")
        self.write_programs()
        if os.geteuid() == 0:
            self.say("RLIMIT_NPROC left out: root is not bound by it")
        has_disk = self.mount()
        try:
            with contextlib.closing(self.proxy):
                quiet = self.quiet()
                left = self.plan.trials
                for kind in itertools.cycle(KINDS):
                    if left <= 0:
                        break
                    self.one(kind, min(left, self.plan.sweep_trials))
                    left -= self.plan.sweep_trials
                self.end_fleets()
                self.check_left(quiet)
        finally:
            self.mend(all_of_them=True)
            if has_disk:
                subprocess.run(["umount", "--lazy", str(self.lab.home)], check=True)

    def write_programs(self) -> None:
        """Write the training code of all kinds of sweeps, and set short leases."""
        text = {"log": str(self.values), "seconds": self.plan.trial_s}
        self.lab.write("quick.py", (NOTE + TRAINER).format(**text))
        self.lab.write("quick_program.py", ("    import json" + NOTE + PROGRAM).format(**text))
        self.lab.env.update(ENV)

    def quiet(self) -> set[str]:
        """Run each kind of sweep without a fault; return the shapes of the keys that are left."""
        for kind, text in KINDS.items():
            sid = self.lab.enqueue(text(3))
            self.staff()
            self.lab.wait_over(sid)
            self.check(kind, sid, 3)
        self.end_fleets()
        self.rows.clear()
        return self.shapes()

    def one(self, kind: str, trials: int) -> None:
        """Inject faults until the sweep ends or the time is up; then let it finish."""
        lab, plan = self.lab, self.plan
        sid = lab.enqueue(KINDS[kind](trials), "--new")
        while self.at < plan.seconds and not self.is_over(sid):
            self.staff()
            self.pause(self.rng.expovariate(1 / plan.every_s))
            self.rng.choice(self.faults)()
        self.mend(all_of_them=True)

        def is_over() -> bool:
            self.staff()  # a supervisor that was told to end is alive for a while
            return self.is_over(sid)

        lab.wait_until(is_over, f"the end of {sid}", DEADLINE_S + trials * plan.trial_s)
        lab.audit(sid)
        self.check(kind, sid, trials)

    def is_over(self, sid: str) -> bool:
        """True once a sweep has ended; a sweep that is held would never end."""
        sweep = self.lab.reader.sweeps.get(sid)
        assert not sweep.why_held, sweep.why_held
        return sweep.state.is_over

    @property
    def at(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self.began

    def pause(self, seconds: float) -> None:
        """Wait a little; end faults that lasted long enough."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.mend()
            time.sleep(min(0.05, max(0.0, until - time.monotonic())))

    def staff(self) -> None:
        """Start missing supervisors, as a Deployment does."""
        alive = sum(fleet.poll() is None for fleet in self.lab.workers)
        for _ in range(self.plan.workers - alive):
            self.lab.worker(HPQ_REDIS_URL=self.proxy.url)

    def mend(self, *, all_of_them: bool = False) -> None:
        """End the faults whose time is over."""
        if self.plan.is_full:
            self.fill_or_free(is_over=all_of_them)
        for one in [x for x in self.undo if all_of_them or x[0] <= time.monotonic()]:
            self.undo.remove(one)
            with contextlib.suppress(ProcessLookupError):
                one[1]()

    def told(self, what: str, more: str = "") -> None:
        """Record a fault."""
        self.blows[what] += 1
        self.say(f"{self.at:6.1f} s  {what} {more}".rstrip())

    # --- faults -------------------------------------------------------------------------------

    def signal(self, what: str, kind: str, number: int) -> int:
        """Signal one process of a kind; return its pid, 0 if there is none."""
        pids = sorted(self.lab.processes(PROCESSES[kind]))
        if not pids:
            return 0
        pid = self.rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.told(f"{what} a {kind}", str(pid))
        return pid

    def kill_one(self) -> None:
        self.signal("kill -9 of", self.rng.choice([*PROCESSES]), signal.SIGKILL)

    def end_fleet(self) -> None:
        self.signal("SIGTERM to", "supervisor", signal.SIGTERM)

    def stop(self) -> None:
        if pid := self.signal("SIGSTOP of", self.rng.choice([*PROCESSES]), signal.SIGSTOP):
            self.later(0.5, 5.0, lambda: os.kill(pid, signal.SIGCONT))

    def end_stopped(self) -> None:
        """Stop a process for good, then end its supervisor, which leaves nothing of it."""
        kind = self.rng.choice(["worker", "runner"])
        pid = self.signal("SIGSTOP for good, then SIGTERM above, of", kind, signal.SIGSTOP)
        for fleet in self.lab.processes(PROCESSES["supervisor"]):
            if pid in descendants(fleet):
                os.kill(fleet, signal.SIGTERM)

    def starve(self) -> None:
        """Deny one process more memory, open files or processes for a while."""
        limits = [name for name in LIMITS if name != "RLIMIT_NPROC" or os.geteuid()]
        kind, what = self.rng.choice([*PROCESSES]), self.rng.choice(limits)
        pids = sorted(self.lab.processes(PROCESSES[kind]))
        if not pids:
            return
        pid, limit = self.rng.choice(pids), getattr(resource, what)
        with contextlib.suppress(OSError):  # it has ended
            soft, hard = resource.prlimit(pid, limit)
            resource.prlimit(pid, limit, (LIMITS[what](Path(f"/proc/{pid}")), hard))
            self.told(f"{what} of a {kind}", str(pid))
            self.later(1.0, 3.0, lambda: self.feed(limit, (soft, hard)))

    def feed(self, limit: int, values: tuple[int, int]) -> None:
        """Reset a limit of all processes: those that were starved have passed it on."""
        for pid in self.lab.processes():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, limit, values)

    def later(self, least_s: float, most_s: float, undo: Callable[[], object]) -> None:
        """End a fault after a random time."""
        self.undo.append((time.monotonic() + self.rng.uniform(least_s, most_s), undo))

    def mount(self) -> bool:
        """Give HPQ_HOME a small disk, which a fault fills; say so if nothing can be mounted."""
        home = self.lab.home
        home.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(home)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.say(f"full disks left out: {done.stderr.strip()}")
            return False
        self.faults.append(self.fill)
        return True

    def fill(self) -> None:
        ballast = self.lab.home / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4_096)):
                pass
        self.told("a full disk under HPQ_HOME")
        self.later(1.0, 3.0, lambda: ballast.unlink(missing_ok=True))

    def cut(self) -> None:
        self.proxy.cut()
        self.told("every connection cut")

    def lose(self) -> None:
        script = self.rng.choice(SCRIPTS)
        self.proxy.lose(script, torn=self.rng.random() < 0.5)
        self.told("a reply lost", f"of {script}")

    def hole(self) -> None:
        seconds = self.rng.uniform(0.5, 4.0)
        self.told("packets dropped silently", f"for {seconds:.1f} s")
        self.proxy.hole()
        self.pause(seconds)
        self.proxy.mend()

    def restart_redis(self) -> None:
        self.told("kill -9 of Redis")
        self.lab.server.kill()
        self.pause(self.rng.uniform(0.0, 1.0))
        self.lab.server.start()

    def flush(self) -> None:
        self.lab.redis.script_flush()
        self.told("SCRIPT FLUSH")

    def fill_redis(self) -> None:
        """Let Redis be at its maxmemory: no trial starts, and the reaper drops logs and curves."""
        self.limit_redis(1)
        self.told("Redis at its maxmemory")
        self.later(1.0, 5.0, lambda: self.limit_redis(0))

    def fill_or_free(self, *, is_over: bool) -> None:
        """Keep Redis at its maxmemory, at which no trial starts, while enough trials run."""
        with contextlib.suppress(RedisError):
            running = self.lab.redis.zcard(self.lab.keys.leases)
            is_full = running >= self.plan.workers / 2 and not is_over
            self.limit_redis(int(is_full))
            self.full[is_full] += 1

    def limit_redis(self, maxmemory: int) -> None:
        with contextlib.suppress(RedisError):  # it is killed, and comes back without a limit
            self.lab.redis.config_set("maxmemory", maxmemory)

    # --- audit --------------------------------------------------------------------------------

    def check(self, kind: str, sid: str, count: int) -> None:
        """Assert that each trial finished once, with the value that its attempt logged."""
        lines = [line.split() for line in self.values.read_text("ascii").splitlines()]
        logged = {(trial, int(n)): (float(x), float(value)) for trial, n, x, value in lines}
        trials = list(self.lab.reader.trials.all(sid))
        events = self.lab.reader.events.read(sid)
        ends = Counter(e.trial for e in events if e.what == TrialState.FINISHED)
        right = sum(
            logged.get((str(t.id), t.attempt)) == (t.params["x"], t.objective) for t in trials
        )
        lost = count - len(ends)
        doubled = sum(n > 1 for n in ends.values())
        back = Counter(e.fields["reason"] for e in events if e.what == "requeued")
        late = sum(e.what == "resumed" for e in events)
        cells = (
            f"{kind}, {self.at:.0f} s", len(ends), right, lost, doubled,
            sum(t.attempt for t in trials), late,
            ", ".join(f"{reason} {n}" for reason, n in back.most_common()),
        )  # fmt: skip
        self.rows.append(f"| {' | '.join(map(str, cells))} |")
        self.say(f"{self.at:6.1f} s  {sid}: {self.rows[-1]}")
        assert (len(ends), right, lost, doubled) == (count, count, 0, 0)

    def end_fleets(self) -> None:
        """End all supervisors as a user does, with one SIGTERM."""
        for fleet in self.lab.workers:
            if fleet.poll() is None:
                fleet.terminate()
        self.lab.wait_until(lambda: not self.lab.processes(), f"no process: {self.lab.processes()}")

    def check_left(self, quiet: set[str]) -> None:
        """Assert that no claim and no key is left that a run without faults does not leave."""
        more = sorted(self.shapes() - quiet - NAMES)
        self.say(f"{self.at:6.1f} s  {len(self.lab.processes())} processes left; more keys: {more}")
        assert not more

    def shapes(self) -> set[str]:
        """Return the names of the keys that do not expire, without ids and numbers."""
        redis = self.lab.redis
        # The counts of the queue are right after a repair, which each reaper makes now and then.
        store = TrialStore(StoreContext.open(redis, self.lab.keys))
        self.lab.wait_until(
            lambda: store.reap("default", lease_ms=2_000, lost_max=50),
            "a repair, which waits for one lease after a restart of Redis",
        )
        kept = [str(key, "utf-8") for key in redis.scan_iter() if redis.ttl(key) == -1]
        sweeps = "|".join(re.escape(sid) for sid in self.lab.reader.sweeps.ids())
        return {re.sub(r"[0-9a-f]{12,}|\d+", "N", re.sub(sweeps, "S", key)) for key in kept}


def _memory(process: Path) -> int:
    return int((process / "statm").read_text("ascii").split()[0]) * resource.getpagesize()


LIMITS: dict[str, Callable[[Path], int]] = {
    "RLIMIT_AS": _memory,
    "RLIMIT_NOFILE": lambda process: len(os.listdir(process / "fd")),
    "RLIMIT_NPROC": lambda _: 1,
}


def table(head: str, rows: list[str]) -> str:
    """Return a Markdown table."""
    columns = head.count("|") - 1
    return "\n".join([head, "|" + "---|" * columns, *rows, ""])


def tracebacks(log: str) -> list[str]:
    """Return each traceback of a log up to the line of its exception."""
    return re.findall(r"(?ms)^[^\n]*Traceback.*?^(?! {2}).+?$", log)


def main() -> None:
    """Run the long form, and print the figures of docs/results/evidence.md."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--trials", type=int, default=Plan.trials)
    parser.add_argument("--full", action="store_true", help="with Redis at its maxmemory")
    args = parser.parse_args()
    plan = Plan(seed=args.seed, trials=args.trials, is_full=args.full)
    folder = Path(tempfile.mkdtemp(prefix="hpq-c-"))
    server = Server(folder, find_server())
    server.start()
    lab = Lab(folder / "lab", server)
    try:
        chaos = Chaos(lab, plan, lambda line: print(line, flush=True))
        chaos.run()
        print(
            f"\n{datetime.now(UTC):%Y-%m-%d}, seed {plan.seed}, {plan.trials} trials in"
            f" {chaos.at:.0f} s, {os.cpu_count()} cores, load {os.getloadavg()[2]:.0f},"
            f" {chaos.blows.total()} faults, {lab.log().count('Traceback')} tracebacks"
        )
        if plan.is_full:
            print(f"Redis at its maxmemory for {chaos.full[True] / chaos.full.total():.0%} of it")
        print()
        head = "| sweep ended after | finished | correct results | lost | doubled | attempts |"
        print(table(f"{head} late results | requeued |", chaos.rows))
        blows = [f"| {what} | {n} |" for what, n in chaos.blows.most_common()]
        print(table("| fault | times |", blows))
        print(*tracebacks(lab.log()), sep="\n")
    finally:
        lab.end()
        server.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
