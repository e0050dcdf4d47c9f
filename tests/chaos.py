"""`python -m tests.chaos`: run sweeps under random faults, then audit them.

Workers, runners and supervisors are killed, stopped and terminated, connections cut, replies lost,
Redis killed and its scripts flushed. The seed and every fault are printed. A test runs the short
form.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpq.domain.trial import TrialState
from tests.constants import DEADLINE_S
from tests.lab import Lab
from tests.proxy import Proxy
from tests.server import Server, find_server

TRAINER = """
    import time

    def train(params, trial):
        for step in range(1, 6):
            trial.report({"loss": params["x"] / step}, step=step)
            time.sleep(params["seconds"] / 5)
        return {"loss": params["x"] / 10}
"""
SCRIPTS = ("claim", "beat", "commit", "release", "presence", "reap")
OFTEN_LOST = {"HPQ_LOST_MAX": "20"}  # here a healthy trial loses its worker often


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of a run; `every_s` is the mean time between two faults."""

    seed: int
    trials: int = 300
    trial_s: float = 1.0
    workers: int = 4
    seconds: float = 300.0
    every_s: float = 1.0


class Chaos:
    """One run of a plan in a lab; workers connect through the proxy."""

    def __init__(self, lab: Lab, plan: Plan, say: Callable[[str], None]) -> None:
        self.lab, self.plan, self.say = lab, plan, say
        self.rng = random.Random(plan.seed)
        self.proxy = Proxy(str(lab.server.socket))
        self.began = time.monotonic()
        self.stopped: list[tuple[float, int]] = []  # when to continue, pid
        self.blows: Counter[str] = Counter()

    def run(self) -> None:
        """Run one sweep after another until the time is up; audit each."""
        self.say(f"seed {self.plan.seed}: {self.plan}")
        self.lab.write("quick.py", TRAINER)
        self.lab.env["HPQ_LEASE_S"] = "2"
        try:
            while self.at < self.plan.seconds:
                self.one()
        finally:
            self.go_on(all_of_them=True)
            self.proxy.close()

    def one(self) -> None:
        """Inject faults until the sweep ends or the time is up; then let it finish."""
        lab, plan = self.lab, self.plan
        numbers = list(range(1, plan.trials + 1))
        sid = lab.enqueue(
            "trainer: quick:train\nmethod: grid\nmetric: {name: loss}\nretries: 100\n"
            f"parameters: {{x: {{values: {numbers}}}, seconds: {{value: {plan.trial_s}}}}}\n",
            "--new",
        )
        blows = (self.kill_worker, self.kill_runner, self.kill_fleet, self.end_fleet, self.stop,
                 self.cut, self.lose, self.hole, self.restart_redis, self.flush)  # fmt: skip
        while self.at < plan.seconds and not lab.reader.sweeps.get(sid).state.is_over:
            self.staff()
            self.pause(self.rng.expovariate(1 / plan.every_s))
            self.rng.choice(blows)()
        self.go_on(all_of_them=True)

        def is_over() -> bool:
            self.staff()  # a supervisor that was told to end is alive for a while
            return lab.reader.sweeps.get(sid).state.is_over

        deadline_s = DEADLINE_S + plan.trials * plan.trial_s
        lab.wait_until(is_over, f"the end of {sid}", deadline_s)
        lab.audit(sid)
        self.check(sid)

    @property
    def at(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self.began

    def pause(self, seconds: float) -> None:
        """Wait a little; continue processes that were stopped long enough."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.go_on()
            time.sleep(min(0.05, max(0.0, until - time.monotonic())))

    def staff(self) -> None:
        """Start missing supervisors, as a Deployment does."""
        alive = sum(fleet.poll() is None for fleet in self.lab.workers)
        for _ in range(self.plan.workers - alive):
            self.lab.worker(HPQ_REDIS_URL=self.proxy.url, **OFTEN_LOST)

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Send SIGCONT to processes whose stop is over."""
        due = [x for x in self.stopped if all_of_them or x[0] <= time.monotonic()]
        for one in due:
            self.stopped.remove(one)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one[1], signal.SIGCONT)

    def told(self, what: str, more: str = "") -> None:
        """Record a fault."""
        self.blows[what] += 1
        self.say(f"{self.at:6.1f} s  {what} {more}".rstrip())

    # --- faults -------------------------------------------------------------------------------

    def signal(self, what: str, pattern: str, number: int) -> int:
        """Signal one matching process; return its pid, 0 if none matches."""
        pids = sorted(self.lab.processes(pattern))
        if not pids:
            return 0
        pid = self.rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.told(what, str(pid))
        return pid

    def kill_worker(self) -> None:
        self.signal("kill -9 of a worker", r"-m hpq_worker\.consumer", signal.SIGKILL)

    def kill_runner(self) -> None:
        self.signal("kill -9 of a runner", r"-m hpq_worker\.runner", signal.SIGKILL)

    def kill_fleet(self) -> None:
        self.signal("kill -9 of a fleet", r"worker --workers", signal.SIGKILL)

    def end_fleet(self) -> None:
        self.signal("SIGTERM to a fleet", r"worker --workers", signal.SIGTERM)

    def stop(self) -> None:
        if pid := self.signal("SIGSTOP of a worker", r"-m hpq_worker\.consumer", signal.SIGSTOP):
            self.stopped.append((time.monotonic() + self.rng.uniform(0.5, 5.0), pid))

    def cut(self) -> None:
        self.proxy.cut()
        self.told("every connection cut")

    def lose(self) -> None:
        script = self.rng.choice(SCRIPTS)
        self.proxy.lose(script, torn=self.rng.random() < 0.5)
        self.told("a reply lost", f"of {script}")

    def hole(self) -> None:
        seconds = self.rng.uniform(0.5, 4.0)
        self.told("a black hole", f"for {seconds:.1f} s")
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

    # --- audit --------------------------------------------------------------------------------

    def check(self, sid: str) -> None:
        """Assert that all trials finished, none is lost or doubled; print the statistics."""
        trials = list(self.lab.reader.trials.all(sid))
        events = self.lab.reader.events.read(sid)
        ends = Counter(e.trial for e in events if e.what == TrialState.FINISHED)
        right = sum(t.objective == t.params["x"] / 10 for t in trials)
        lost = self.plan.trials - len(ends)
        doubled = sum(n > 1 for n in ends.values())
        back = Counter(e.fields["reason"] for e in events if e.what == "requeued")
        late = sum(e.what == "resumed" for e in events)
        stale = self.lab.redis.hget(self.lab.keys.counters, "stale_commits") or b"0"
        self.say(
            f"{self.at:6.1f} s  {sid}: {len(ends)} finished, {right} with the right result, "
            f"{lost} lost, {doubled} doubled; {sum(t.attempt for t in trials)} attempts, "
            f"requeued {dict(back)}, {late} late results accepted, "
            f"{int(stale)} stale commits so far"
        )
        assert (len(ends), right, lost, doubled) == (self.plan.trials, self.plan.trials, 0, 0)


def main() -> None:
    """Run the long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--trials", type=int, default=300)
    args = parser.parse_args()
    plan = Plan(seed=args.seed, seconds=args.seconds, trials=args.trials)
    folder = Path(tempfile.mkdtemp(prefix="hpq-c-"))
    server = Server(folder, find_server())
    server.start()
    lab = Lab(folder / "lab", server)
    try:
        chaos = Chaos(lab, plan, lambda line: print(line, flush=True))
        chaos.run()
        blows = ", ".join(f"{n} × {what}" for what, n in chaos.blows.most_common())
        print(f"{chaos.blows.total()} blows: {blows}")
        print(f"The audit holds; {lab.log().count('Traceback')} tracebacks in the workers' logs.")
    finally:
        lab.end()
        server.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
