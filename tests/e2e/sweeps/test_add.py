"""A sweep that is capped, grown and thinned while it runs, and another that reuses its results."""

from __future__ import annotations


def file(lab, values: list[int]):
    return lab.write(
        "edited.yaml",
        f"""
        trainer: steered:train
        method: grid
        metric: {{name: loss, goal: minimize}}
        parameters: {{x: {{values: {values}}}}}
        """,
    )


def test_a_running_sweep_is_capped_grown_and_thinned_and_the_next_trains_only_what_is_new(
    lab,
) -> None:
    sid = lab.steered(4)
    lab.worker()
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: lab.trial(sid).metrics.get("loss") == 1, "the first report")
    lab.ok("set", sid, "run_cap=3")
    lab.ok("add", sid, "x=5", "--outside")
    lab.ok("cancel", sid, "--where", "x == 3 or (loss == 1 and state == running)", "--yes")
    lab.wait_for("began-2-1")
    lab.go()
    lab.wait_over(sid)
    ends = {t.params["x"]: t.state.value for t in lab.reader.trials.all(sid)}
    assert ends == {1: "cancelled", 2: "finished", 3: "cancelled", 4: "cancelled", 5: "finished"}
    more = lab.ok("enqueue", file(lab, [2, 5, 6]), "--reuse").strip()
    lab.wait_over(more)
    trials = list(lab.reader.trials.all(more))
    assert [t.reused for t in trials] == [f"{sid}/2", f"{sid}/5", ""]
    assert [t.objective for t in trials] == [0.2, 0.5, 0.6]
    began = sorted(path.name for path in lab.code.glob("began-*"))
    assert began == ["began-1-1", "began-2-1", "began-5-1", "began-6-1"]


def test_run_trains_what_was_added_to_a_sweep_that_ended(lab) -> None:
    lab.write("train.py", "import sys\nprint('loss=' + sys.argv[1].partition('=')[2])\n")
    text = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
    sid = lab.enqueue(text)
    assert lab.hpq("run", sid, "--workers", "1").returncode == 0
    lab.write("train.py", "raise SystemExit(1)\n")  # the trials run the sweep's own code
    lab.ok("add", sid, "x=2", "--outside")
    assert lab.hpq("run", sid, "--workers", "1").returncode == 0
    assert [lab.trial(sid, n).objective for n in (1, 2)] == [1.0, 2.0]
