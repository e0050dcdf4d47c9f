"""wandb.sweep and wandb.agent in a script: the trials run in the script's own process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping

import pytest

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import SweepState
from hpq.domain.trial import FailureKind, TrialState
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused

SPACE = """
    import os, signal, sys, time
    from pathlib import Path
    import wandb

    space = {
        "method": "grid",
        "metric": {"name": "val_acc", "goal": "maximize"},
        "parameters": {"lr": {"values": [0.1, 0.01, 0.001]}, "epochs": {"value": 2}},
    }
    ENV = dict(os.environ)
    def wait_for(name):
        while not Path(name).exists(): time.sleep(0.01)
    def train(config=None):
        with wandb.init(config={"lr": 1.0, "batch": 32}) as run:
            assert run.config.batch == wandb.config["batch"] == 32
            for epoch in range(run.config.epochs):
                wandb.log({"val_acc": 1 - run.config.lr, "epoch": epoch}, step=epoch)
            return run.config.lr
"""
START = 'sid = wandb.sweep(space, project="demo")\nwandb.agent(sid, function=train)\n'


class Script:
    """A script that `hpq exec` runs; its output is kept in files."""

    def __init__(self, lab, text: str, env: Mapping[str, str], first: str = SPACE) -> None:
        number = len(list(lab.code.glob("script-*.py")))
        lab.write(f"script-{number}.py", textwrap.dedent(first) + textwrap.dedent(text))
        self._lab, self._out = lab, [lab.folder / f"{name}-{number}" for name in ("out", "err")]
        with self._out[0].open("wb") as out, self._out[1].open("wb") as err:
            self.process = subprocess.Popen(
                [HPQ, "exec", sys.executable, f"script-{number}.py"],
                cwd=lab.code, env=lab.env | env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        lab.workers.append(self.process)

    @property
    def out(self) -> str:
        return self._out[0].read_text("utf-8")

    @property
    def err(self) -> str:
        return self._out[1].read_text("utf-8")

    def ends(self, code: int = 0) -> list[str]:
        """Wait for the end; return the lines of stdout."""
        try:
            found = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end\n{self.out}\n{self.err}")
        assert found == code, self.out + self.err
        return self.out.splitlines()


def run(lab, text: str, code: int = 0, **env: str) -> list[str]:
    """Run a script to its end; return the lines of stdout."""
    return Script(lab, text, env).ends(code)


def sweep_of(lab) -> str:
    """Wait for the sweep that a script creates; return its id."""
    lab.wait_until(lambda: lab.reader.sweeps.ids(), "a sweep")
    return str(lab.reader.sweeps.ids()[0])


def states(lab, sid: str) -> list[str]:
    return [trial.state.value for trial in lab.reader.trials.all(sid)]


def requeues(lab, sid: str) -> list[tuple[int, str]]:
    """Return which trials went back to the queue, and why; "stopping" costs no retry."""
    events = [e for e in lab.reader.events.read(sid) if e.what == "requeued"]
    return [(e.trial, e.fields["reason"]) for e in events]


def test_a_tutorials_script_enqueues_its_sweep_and_runs_the_trials_in_its_own_process(lab) -> None:
    said = run(lab, """
        import logging
        older = logging.getLogger("older")
        older.addHandler(logging.StreamHandler())
        older.propagate = False
        seen = []
        def main():
            logging.basicConfig(level="INFO")  # keeps the stderr of the first trial
            lr = train()
            logging.info("logged in %s", lr)
            sys.stderr.writelines(["one ", "line\\n"])
            older.warning("by an older handler")
            seen.append((os.environ["HPQ_TRIAL_ID"].split("/")[1], lr))
        sid = wandb.sweep(space, project="demo")
        assert wandb.agent(f"me/demo/{sid}", main) is None
        print(seen)
        os.environ.pop("WANDB_PROJECT")
        assert dict(os.environ) == ENV
        files = [Path("other").open("w") for _ in range(9)]  # take the numbers of the pipes
        logging.info("after the agent")
        with wandb.init(project="final", config={"lr": 1.0}) as final:
            final.config.update({"lr": 0.5}, allow_val_change=True)
            final.log({"x": final.config.lr})
    """)  # fmt: skip
    sid = sweep_of(lab)
    assert said[0].split()[-1] == said[1].split()[-1] == sid
    assert said[2:] == ["[('1', 0.1), ('2', 0.01), ('3', 0.001)]", "x=0.5"]
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [t.objective for t in trials] == [0.9, 0.99, 0.999]
    assert "logged in 0.01\n" in lab.printed(sid, 2) and "one line\n" in lab.printed(sid, 2)
    assert "by an older handler\n" in lab.printed(sid, 2)
    assert (lab.code / "other").read_text() == ""
    assert [(p.step, p.value) for p in lab.reader.trials.metric_history(trials[0].id, "epoch")] == [
        (0, 0.0), (1, 1.0),
    ]  # fmt: skip


def test_an_open_ended_sweep_of_the_script_ends_with_the_script_after_all_its_agents(lab) -> None:
    run(lab, """
        space |= {"method": "random", "parameters": {"lr": {"min": 0.001, "max": 0.1},
                                                     "epochs": {"value": 1}}}
        sid = wandb.sweep(space)
        for _ in range(2): wandb.agent(sid, train, count=1)
        wandb.agent(sid, train, count=2)
    """)  # fmt: skip
    sid = sweep_of(lab)
    lab.wait_over(sid)
    assert states(lab, sid).count("finished") == 4
    assert set(states(lab, sid)) <= {"finished", "cancelled"}


def test_an_open_ended_sweep_goes_on_after_its_script_for_another_agent_between_two_trials(
    lab,
) -> None:
    script = Script(lab, """
        space |= {"method": "random", "parameters": {"lr": {"min": 0.001, "max": 0.1},
                                                     "epochs": {"value": 1}}}
        sid = wandb.sweep(space)
        wait_for("go")
        wandb.agent(sid, train, count=1)
    """, {})  # fmt: skip
    sid = sweep_of(lab)
    other = WorkerPresence(name="o", host="h", queue="default", fields={"only": sid})
    store = TrialStore(StoreContext.open(lab.redis, lab.keys))

    def has_ended() -> bool:
        """Report the other agent, as it does itself: one that is silent for long is gone."""
        store.present(other, idle=True, lifetime_ms=600_000)
        (lab.code / "go").touch()
        return script.process.poll() is not None

    lab.wait_until(has_ended, "the end of the script", every_s=0.2)
    script.ends()
    assert lab.reader.sweeps.get(sid).state is SweepState.RUNNING


def test_a_trial_that_raises_or_exits_fails_and_the_agent_runs_the_next(lab) -> None:
    script = Script(lab, """
        def main():
            wandb.init()
            if wandb.config.lr == 0.1: raise ValueError("too high")
            if wandb.config.lr == 0.01: sys.exit("no data")
            wandb.log({"val_acc": 1.0})
        wandb.agent(wandb.sweep(space), main)
        print("goes on")
    """, {})  # fmt: skip
    assert script.ends()[-1] == "goes on"
    sid = sweep_of(lab)
    assert states(lab, sid) == ["failed", "failed", "finished"]
    first, second = lab.trial(sid, 1).failure, lab.trial(sid, 2).failure
    assert first.kind is second.kind is FailureKind.USER_ERROR
    assert "ValueError: too high" in first.message and "no data" in second.message
    assert "script-0.py" in first.fingerprint
    assert script.err.count("\nValueError: too high\n") == 1
    assert lab.printed(sid, 1).count("\nValueError: too high\n") == 1


CHILDREN = """
    import subprocess, sys, time
    import multiprocessing as mp
    import wandb
    import hpq

    def work(rank=0):
        if rank: return
        run = wandb.init()
        for step in range(2): wandb.log({"loss": run.config.lr + step, "t": time.time()}, step=step)
        hpq.report({"by_hpq": run.config.lr})
        wandb.finish()

    def main():
        if (way := sys.argv[1]) == "subprocess":
            return subprocess.run([sys.executable, __file__, "child"], check=True)
        context = mp.get_context(way)
        processes = [context.Process(target=work, args=(rank,)) for rank in range(2)]
        [process.start() for process in processes]
        [process.join() for process in processes]

    if sys.argv[1] == "child":
        work()
    elif __name__ == "__main__":
        sid = wandb.sweep({"method": "grid", "metric": {"name": "loss"},
                           "parameters": {"lr": {"values": [1, 2, 3]}}})
        wandb.agent(sid, main)
"""


@pytest.mark.parametrize("way", ["spawn", "fork", "forkserver", "subprocess"])
def test_a_child_process_of_the_function_reports_for_the_trial_that_runs(lab, way: str) -> None:
    lab.write("children.py", textwrap.dedent(CHILDREN))
    Script(lab, "", {}, f"""
        import runpy, sys
        sys.argv = ["children.py", {way!r}]
        if __name__ == "__main__": runpy.run_path("children.py", run_name="__main__")
    """).ends()  # fmt: skip
    trials = list(lab.reader.trials.all(sweep_of(lab)))
    assert [trial.objective for trial in trials] == [2, 3, 4]
    assert [trial.metrics["by_hpq"] for trial in trials] == [1, 2, 3]


def test_the_agent_ends_a_run_that_was_active_and_its_trials_are_runs_of_their_own(lab) -> None:
    said = run(lab, """
        wandb.init(config={"lr": 99, "mode": "explore"})
        for step in range(5): wandb.log({"val_acc": 99})
        def main():
            run = wandb.init()
            print(run.step, sorted(run.config.items()))
            wandb.log({"val_acc": run.config.lr})
        sid = wandb.sweep(space)
        wandb.agent(sid, main, count=2)
    """)  # fmt: skip
    assert said[-2:] == [f"0 [('epochs', 2), ('lr', {lr})]" for lr in (0.1, 0.01)]
    first, second, _ = lab.reader.trials.all(sweep_of(lab))
    assert (first.objective, second.objective, first.step) == (0.1, 0.01, 0)


def test_the_agent_ends_after_three_early_failures_unless_the_check_is_off(lab) -> None:
    fails = """
        space["parameters"]["x"] = {"values": list(range(4))}
        def main():
            wandb.init()
            raise ValueError(os.environ["HPQ_TRIAL_ID"])
        wandb.agent(wandb.sweep(space), main)
    """
    script = Script(lab, fails, {})
    script.ends()
    assert states(lab, sweep_of(lab)).count("failed") == 3
    assert "WANDB_AGENT_DISABLE_FLAPPING" in script.err
    lab.ok("rm", sweep_of(lab), "--yes")
    # hpq's own breaker holds the sweep at the fifth failure of one kind.
    script = Script(lab, fails, {"WANDB_AGENT_DISABLE_FLAPPING": "true"})
    script.ends()
    assert states(lab, sweep_of(lab)).count("failed") == 5
    assert "WANDB_AGENT_MAX_INITIAL_FAILURES" in script.err


def test_a_cancelled_trial_raises_at_the_next_log_and_at_each_later_one(lab) -> None:
    script = Script(lab, """
        def main():
            with wandb.init() as run:
                if run.config.lr != 0.1: return wandb.log({"val_acc": 1.0})
                raised = 0
                while raised < 3:
                    try:
                        Path("began").touch()
                        wandb.log({"val_acc": 0.5})
                    except Exception:
                        raised += 1
                print("raised 3 times", flush=True)
        wandb.agent(wandb.sweep(space), main)
    """, {"HPQ_GRACE_S": "100"})  # fmt: skip
    lab.wait_for("began")
    sid = sweep_of(lab)
    lab.ok("cancel", f"{sid}/1", "--yes")
    assert "raised 3 times" in script.ends()
    assert states(lab, sid) == ["cancelled", "finished", "finished"]
    lab.audit(sid)


def test_the_agent_goes_on_after_a_function_that_outlives_its_cancelled_trial(lab) -> None:
    script = Script(lab, """
        def main():
            with wandb.init() as run:
                wandb.log({"val_acc": 1.0})
                if run.config.lr != 0.1: return
                Path("began").touch()
                wait_for("go")
                wandb.log({"val_acc": 7.0})
        wandb.agent(wandb.sweep(space), main)
    """, {"HPQ_GRACE_S": "3"})  # fmt: skip
    lab.wait_for("began")
    sid = sweep_of(lab)
    lab.ok("cancel", f"{sid}/1", "--yes")
    is_over = lambda: lab.trial(sid).state is TrialState.CANCELLED  # noqa: E731
    lab.wait_until(is_over, "the end of the grace")
    lab.go()
    script.ends()
    assert states(lab, sid) == ["cancelled", "finished", "finished"]
    assert lab.trial(sid).metrics == {"val_acc": 1.0}
    lab.audit(sid)


def test_the_agent_goes_on_after_a_trial_whose_metric_stays_nan(lab) -> None:
    run(lab, """
        space["metric"]["terminate_on_nan"] = 3
        def main():
            with wandb.init() as run:
                while run.config.lr == 0.1: wandb.log({"val_acc": float("nan")})
                wandb.log({"val_acc": 1.0})
        wandb.agent(wandb.sweep(space), main)
    """)  # fmt: skip
    sid = sweep_of(lab)
    assert states(lab, sid) == ["failed", "finished", "finished"]
    assert lab.trial(sid).failure.kind is FailureKind.DIVERGED


def test_hyperband_prunes_a_trial_at_its_next_log(lab) -> None:
    run(lab, """
        space["parameters"] = {"lr": {"values": [0.001, 0.002, 0.003, 0.9]}}
        space["early_terminate"] = {"type": "hyperband", "min_iter": 3}
        def main():
            with wandb.init() as run:
                for epoch in range(3): wandb.log({"val_acc": 1 - run.config.lr})
                while run.config.lr == 0.9: wandb.log({"val_acc": 1 - run.config.lr})
        wandb.agent(wandb.sweep(space), main)
    """)  # fmt: skip
    sid = sweep_of(lab)
    assert states(lab, sid) == ["finished"] * 3 + ["pruned"]
    assert lab.trial(sid, 4).metrics["val_acc"] == pytest.approx(0.1)


def test_ctrl_c_returns_the_trial_uncharged_and_another_agent_runs_it(lab) -> None:
    first = Script(lab, """
        def main():
            if train() == 0.01:
                Path("began").touch()
                while True: time.sleep(0.01)
        wandb.agent(wandb.sweep(space), main)
        print("bye")
    """, {})  # fmt: skip
    lab.wait_for("began")
    first.process.send_signal(signal.SIGINT)
    assert first.ends()[-1] == "bye"
    sid = sweep_of(lab)
    assert states(lab, sid) == ["finished", "queued", "queued"]
    assert requeues(lab, sid) == [(2, "stopping")]
    run(lab, f"wandb.agent({sid!r}, train)")
    lab.wait_over(sid)
    assert states(lab, sid) == ["finished"] * 3


@pytest.mark.parametrize("end", ["os._exit(4)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_ends_in_a_trial_returns_the_trial(lab, end: str) -> None:
    Script(lab, f"""
        def main():
            wandb.init()
            {end}
        wandb.agent(wandb.sweep(space), main)
    """, {}).process.wait(DEADLINE_S)  # fmt: skip
    sid = sweep_of(lab)
    lab.wait_until(lambda: requeues(lab, sid) == [(1, "stopping")], "the release")
    assert states(lab, sid) == ["queued"] * 3
    run(lab, f"wandb.agent({sid!r}, train)")
    lab.wait_over(sid)


def test_a_call_that_holds_the_gil_for_longer_than_a_lease_loses_nothing(lab) -> None:
    run(lab, """
        import ctypes
        def main():
            wandb.init()
            if wandb.config.lr == 0.1: ctypes.PyDLL(None).sleep(15)
            wandb.log({"val_acc": 1.0})
        wandb.agent(wandb.sweep(space), main)
    """, HPQ_LEASE_S="5")  # fmt: skip
    sid = sweep_of(lab)
    lab.wait_over(sid)
    assert [t.attempt for t in lab.reader.trials.all(sid)] == [1, 1, 1]


def test_a_trial_past_its_time_limit_is_given_up_and_the_agent_raises(lab) -> None:
    script = Script(lab, """
        space["timeout"] = 0.5
        def main():
            wandb.init()
            wait_for("go")
            try:
                wandb.log({"val_acc": 1.0})
            except Exception:
                print("raised")
        try:
            wandb.agent(wandb.sweep(space), main)
        except wandb.UsageError as error:
            print(error)
    """, {})  # fmt: skip
    sid = sweep_of(lab)
    lab.wait_until(lambda: lab.trial(sid).state is TrialState.FAILED, "the end of the trial")
    lab.go()
    assert script.ends()[-2] == "raised" and "timeout" in script.out.splitlines()[-1]
    assert states(lab, sid) == ["failed", "queued", "queued"]
    assert lab.trial(sid).failure.kind is FailureKind.TIMEOUT and not lab.trial(sid).metrics


def test_a_restart_of_redis_during_a_trial_loses_nothing(lab) -> None:
    script = Script(lab, """
        def main():
            with wandb.init() as run:
                wandb.log({"val_acc": 0.0})
                if run.config.lr == 0.1:
                    Path("began").touch()
                    wait_for("go")
                wandb.log({"val_acc": 1.0})
        wandb.agent(wandb.sweep(space), main)
    """, {})  # fmt: skip
    lab.wait_for("began")
    lab.server.kill()
    lab.go()
    lab.server.start()
    script.ends()
    sid = sweep_of(lab)
    lab.wait_over(sid)
    assert [(t.attempt, t.objective) for t in lab.reader.trials.all(sid)] == [(1, 1.0)] * 3


def test_two_agents_share_a_sweep_and_no_trial_runs_twice(lab) -> None:
    both = """
        def main():
            print("ran", train(), flush=True)
            Path(f"began-{sys.argv[0]}").touch()
            wait_for("go")
    """
    first = Script(lab, both + "    wandb.agent(wandb.sweep(space), main)", {})
    lab.wait_for("began-script-0.py")
    second = Script(lab, both + f"    wandb.agent({sweep_of(lab)!r}, main)", {})
    lab.wait_for("began-script-1.py")
    lab.go()
    ran = [line for s in (first, second) for line in s.ends() if line.startswith("ran")]
    assert sorted(ran) == ["ran 0.001", "ran 0.01", "ran 0.1"]
    lab.wait_over(sweep_of(lab))


def test_only_the_machine_that_enqueued_runs_the_function(lab) -> None:
    key = {"HPQ_CODE_KEY": "0123456789abcdef0123456789abcdef"}
    run(lab, "wandb.sweep(space)", **key)
    sid = sweep_of(lab)
    script = Script(lab, f"wandb.agent({sid!r}, train)", key | {"HPQ_HOME": str(lab.folder / "b")})
    script.ends(1)
    assert "wrong-place" in ids(script.err.strip())
    lab.worker(1, "--sweep", sid, **key)
    lab.wait_until(lambda: "wrong-place" in ids(lab.log()), "the refusal of a worker")
    lab.wait_until(lambda: states(lab, sid) == ["queued"] * 3, "that it returns the trial")
    own = lab.enqueue("trainer: digits\nmethod: grid\nparameters: {seed: {values: [1]}}\n")
    script = Script(lab, f"wandb.agent({own!r}, train)", {})
    script.ends(1)
    assert "wrong-place" in ids(script.err.strip())


def test_an_unknown_sweep_a_bad_configuration_and_a_missing_function_are_errors(lab) -> None:
    said = run(lab, """
        def tried(call):
            try: call()
            except Exception as error: print(type(error).__name__, error)
        tried(lambda: wandb.agent("none-12345", train))
        tried(lambda: wandb.agent("none-12346"))
        tried(lambda: wandb.agent("none-12345", 3))
        tried(lambda: wandb.sweep({**space, "metod": 1}))
        tried(lambda: wandb.sweep({**space, "parameters": {"x": {"value": object()}}}))
    """)  # fmt: skip
    kinds = [line.partition(" ")[0] for line in said if "Error" in line.partition(" ")[0]]
    assert kinds == ["UsageError", "UsageError", "TypeError", "UsageError", "TypeError"], said
    assert "sweep-not-found" in ids(said[0]) and "none-12346" in said[1]
    assert "metod" in "".join(said) and "/tmp" not in "".join(said)
    assert lab.reader.sweeps.ids() == []


def test_a_dictionary_with_a_program_calls_the_function_of_a_script_that_has_one(lab) -> None:
    """So does W&B: its agent reads the program only if it was called without a function."""
    space = 'space |= {"program": "gone.py", "command": ["${program}"]}\n'
    called = "def go(sid): wb.agent(sid, count=1, function=train)"
    lab.write("helper.py", f"import wandb as wb\nfrom script import train\n{called}\n")
    lab.write("script.py", textwrap.dedent(SPACE))
    for call in ("wandb.agent(sid, train, count=1)", "import helper; helper.go(sid)"):
        first = call.partition("; ")[0] if "; " in call else ""
        script = Script(lab, f"{space}{first}\nsid = wandb.sweep(space)\n{call}", {})
        script.ends()
        sid = sweep_of(lab)
        assert states(lab, sid) == ["finished", "queued", "queued"]
        assert script.err.count("'program' is ignored") == 1
        lab.ok("rm", sid, "--yes")


def test_an_agent_calls_its_function_for_a_program_and_runs_that_without_one(
    lab,
) -> None:
    lab.write("p.py", "import wandb\nrun = wandb.init()\nrun.log({'val_acc': -run.config.lr})\n")
    lab.write("s.yaml", """
        program: p.py
        method: grid
        metric: {name: val_acc, goal: maximize}
        parameters: {lr: {values: [0.1, 0.2, 0.3]}, epochs: {value: 1}}
    """)  # fmt: skip
    sid = lab.ok("enqueue", "s.yaml").strip()
    run(lab, f"""
        wandb.agent({sid!r}, train, count=1)
        wandb.agent("me/demo/{sid}", count=1)
    """)  # fmt: skip
    assert [t.objective for t in lab.reader.trials.all(sid)] == [0.9, -0.2, None]
    assert states(lab, sid) == ["finished", "finished", "queued"]
    lab.ok("rm", sid, "--force", "--yes")
    run(lab, """
        space |= {"program": "p.py", "parameters": {"lr": {"values": [0.4, 0.5]}}}
        wandb.agent(wandb.sweep(space))
    """)  # fmt: skip
    mine = sweep_of(lab)
    assert [t.objective for t in lab.reader.trials.all(mine)] == [-0.4, -0.5]
    assert lab.reader.sweeps.get(mine).launch.program == "p.py"


def test_an_agent_without_a_function_needs_a_program(lab) -> None:
    script = Script(lab, "wandb.agent(wandb.sweep(space))", {})
    script.ends(1)
    assert "has no program" in script.err


def test_a_second_agent_in_the_same_process_is_refused(lab) -> None:
    said = run(lab, """
        import threading
        def main():
            if train() == 0.1:
                try: wandb.agent("other", train)  # within a trial: it is called once
                except Exception as error: print("within", error)
                thread = threading.Thread(target=second)
                thread.start()
                thread.join()
        def second():
            os.environ.pop("HPQ_TRIAL_ID")
            try: wandb.agent(sid, train)
            except wandb.UsageError as error: print("second", error)
        sid = wandb.sweep(space)
        wandb.agent(sid, main)
    """)  # fmt: skip
    assert [line.partition(" ")[0] for line in said[2:]] == ["second"]
    assert states(lab, sweep_of(lab)) == ["finished"] * 3


def test_a_function_that_never_calls_init_ends_its_trials(lab) -> None:
    run(lab, "del space['metric']\nwandb.agent(wandb.sweep(space), lambda: print('alone'))")
    sid = sweep_of(lab)
    assert states(lab, sid) == ["finished"] * 3 and "alone" in lab.printed(sid)


def test_hpq_agent_runs_a_trainer_function_without_wandbs_names(lab) -> None:
    script = Script(lab, """
        import hpq
        def train(params, trial):
            trial.report({"loss": 9}, step=0)
            (trial.checkpoint_dir / "model").write_text("x")
            return {"loss": params["x"]}
        sweep = hpq.enqueue({
            "method": "grid", "metric": {"name": "loss"}, "parameters": {"x": {"values": [3, 1, 2]}}
        })
        hpq.agent(sweep, train, count=2)
    """, {}, first="")  # fmt: skip
    script.ends()
    sid = sweep_of(lab)
    assert states(lab, sid) == ["finished", "finished", "queued"]
    assert [t.objective for t in lab.reader.trials.all(sid)][:2] == [3, 1]
    assert lab.reader.sweeps.get(sid).state is SweepState.RUNNING


def test_a_notebook_imports_the_stand_in_from_hpq(lab) -> None:
    done = subprocess.run(
        [sys.executable, "-"], cwd=lab.code, env=lab.env, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
        input=textwrap.dedent(SPACE).replace("import wandb", "from hpq import wandb")
        + 'space["program"] = "gone.py"  # a later cell calls the agent\n' + START,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert states(lab, sweep_of(lab)) == ["finished"] * 3


def test_hpq_run_refuses_a_sweep_whose_trials_call_a_function(lab) -> None:
    lab.write("s.yaml", "trainer: function\nmethod: grid\nparameters: {x: {values: [1]}}\n")
    refused(lab.hpq("run", "s.yaml"), "wrong-place", "hpq exec python")
    assert not lab.reader.sweeps.ids()
    sid = lab.ok("enqueue", "s.yaml").strip()
    refused(lab.hpq("run", sid), "wrong-place", "hpq exec python")


def test_api_reads_sweeps_runs_and_histories_from_hpq(lab) -> None:
    said = run(lab, """
        def main():
            with wandb.init(config={"lr": 1, "batch": 32}, tags=["mine"], group="g") as run:
                for epoch in range(4):
                    wandb.log({"val_acc": 1 - run.config.lr, "epoch": epoch})
                    run.config.update({"late": 7}, allow_val_change=True)
                    run.summary["text"] = "done"
                    if epoch == 2: wandb.log({"rare": 1})
                if run.config.lr == 0.1: raise ValueError
        sid = wandb.sweep(space, project="demo")
        wandb.agent(sid, main)
        sweep = wandb.Api().sweep(f"me/demo/{sid}")
        best = sweep.best_run()
        print(best.id == f"{sid}-3", best.config["lr"], best.summary["val_acc"], best.state)
        print(best.config["batch"], best.config["late"], best.tags, best.group)
        print(best.summary["text"])
        print(sweep.best_run("+val_acc").config["lr"], sweep.best_run("val_acc").config["lr"])
        print(sweep.state, sweep.project, len(sweep.runs), sweep.order, sweep.config["method"])
        print([run.state for run in sweep.runs], [len(list(r.scan_history())) for r in sweep.runs])
        rows = best.history(keys=["epoch", "val_acc"], pandas=False)
        print(rows[-1], len(rows), len(best.history(samples=2)), best.lastHistoryStep)
        api = wandb.Api()
        def found(filters, order="-summary_metrics.val_acc"):
            return [run.config["lr"] for run in api.runs("me/demo", filters, order=order)]
        print(found({"config.lr": {"$lt": 0.05}, "state": "finished"}))
        print(found({"$or": [{"state": "failed"}, {"display_name": {"$regex": "-2$"}}]}))
        print(found(None, "config.lr"), len(api.runs("me/other")))
        for wrong in (lambda: found({"config.lr": {"$nin": [1]}}), lambda: found({"color": 1}),
                      lambda: api.projects, lambda: best.delete(), lambda: api.sweep("none")):
            try: wrong()
            except (ValueError, AttributeError, wandb.UsageError) as error: print(error)
    """)  # fmt: skip
    assert said[2:12] == [
        "True 0.001 0.999 finished",
        "32 7 ['mine'] g",
        "done",
        "0.1 0.001",
        "FINISHED demo 3 -summary_metrics.val_acc grid",
        "['failed', 'finished', 'finished'] [5, 5, 5]",
        "{'_step': 4, 'epoch': 3.0, 'val_acc': 0.999} 4 2 4",
        "[0.001, 0.01]",
        "[0.01, 0.1]",
        "[0.001, 0.01, 0.1] 0",
    ]  # fmt: skip
    wrong = said[12:]
    assert "$nin" in wrong[0] and all("[run for run in" in line for line in wrong[:2]), wrong
    assert "color" in wrong[1] and len(wrong) == 5, wrong
    assert all("hpq's stand-in" in line for line in wrong[2:4]), wrong
