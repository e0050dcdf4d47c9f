"""Scripts written for W&B run unchanged: no wandb package, no account, no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpq.code.command import argv
from hpq.domain.trial import TrialState
from tests.support.hook import serving
from tests.support.ids import ids

SWEEP = """
    program: train.py
    method: grid
    metric: {name: val_loss, goal: minimize}
    parameters:
      lr: {values: [0.5]}
      model:
        parameters:
          layers: {value: 2}
"""
USUAL = """
    import argparse
    import wandb

    print("val_loss=0.001\\nlayers=2", flush=True)         # no reports either

    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=9)
    p.add_argument("--model")
    args = p.parse_args()
    with wandb.init(project="p", config={"lr": 1.0, "epochs": 3, "model": {"layers": 7}}) as run:
        config = wandb.config
        assert (config.lr, config["epochs"], config.get("none", 4)) == (0.5, 3, 4)
        assert config.model == {"layers": 2} and run.config.as_dict() == dict(config)
        config.lr = 8.0                                    # the sweep's stay as they are
        config.update({"lr": 8.0, "extra": 1}, allow_val_change=True)
        assert (config.lr, config.extra) == (0.5, 1)
        wandb.watch(object())
        for epoch in range(config.epochs):
            wandb.log({"train": {"loss": 2.0}}, commit=False)
            wandb.log({"val_loss": config.lr * (3 - epoch), "mAP@0.5": 0.1, "note": "text"})
            print(f"val_loss={config.lr * (3 - epoch)}")
        run.summary["best"] = 0.125
        run.summary["a[b]"] = 2
        open("weights.bin", "wb").write(b"12345")
        wandb.save("weights.bin")
        artifact = wandb.Artifact("model", type="model")
        with artifact.new_file("a/b.txt") as file:
            file.write("in an artifact")
        run.log_artifact(artifact)
        wandb.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"]]),
                   "page": wandb.Html("<p>"), "picture": wandb.Image([[1]])})
        wandb.alert("done", "all of it")
    print("noise=0.5")                                     # no report: the script has wandb
"""


def test_what_a_script_sets_beside_numbers_is_kept_and_shown(lab) -> None:
    lab.write(
        "train.py",
        """
        import os, signal, sys, wandb

        run = wandb.init(name="first", tags=["a"], group="g", config={"epochs": 3, "lr": 9})
        wandb.config.update({"data": {"set": "cifar", "nan": float("nan")}, "long": "x" * 5_000})
        wandb.config.update({"secret": os.environ["MY_TOKEN"]})
        wandb.log({"val_loss": 0.5})
        if wandb.config.lr == 0.1:
            os.kill(os.getpid(), signal.SIGKILL)  # what was set before a log is kept
        run.name, run.notes, run.tags = "second", "why \x1b[31m", run.tags + ("b",)
        wandb.summary["verdict"] = "good"
        for i in range(1000):
            wandb.config.update({f"k{i}": "y" * 100})
        """,
    )
    lr = "lr: {values: [0.5, 0.1]}"
    sid = lab.enqueue(SWEEP.replace("lr: {values: [0.5]}", lr))
    lab.worker(MY_TOKEN="hunter2hunter2")
    lab.wait_over(sid)
    info = lab.trial(sid).run_info
    assert (info["name"], info["group"], info["tags"]) == ("second", "g", ["a", "b"])
    assert info["summary"] == {"verdict": "good"} and info["notes"].startswith("why ")
    config = info["config"]
    assert (config["epochs"], config["data"]) == (3, {"set": "cifar", "nan": "nan"})
    assert len(config["long"]) < 1_100 and "lr" not in config and config["secret"] == "***"
    assert 10 < len(config) < 1_000 and len(json.dumps(info)) < 10_000, "bounded"
    killed = lab.trial(sid, 2)
    assert (killed.state, killed.run_info["name"]) == (TrialState.FAILED, "first")
    shown = lab.ok("show", f"{sid}/1")
    assert all(text in shown for text in ("second", "verdict", "cifar"))
    assert "\x1b[31m" not in shown
    row = json.loads(lab.ok("results", sid, "--json", "--top", "1"))[0]
    assert row["run_info"]["summary"] == {"verdict": "good"}


def test_a_script_for_wandb_runs_unchanged_and_its_numbers_and_files_are_the_trials(lab) -> None:
    lab.write("train.py", USUAL)
    sid = lab.enqueue(SWEEP)
    with serving() as hook:
        lab.worker(HPQ_STORE=str(lab.folder / "store"), HPQ_NOTIFY=hook.url)
        assert f"{sid}/1 alerts: INFO done: all of it" in hook.next()
        lab.wait_over(sid)
    trial, log = lab.trial(sid), lab.printed(sid)
    assert (trial.state, trial.objective) == (TrialState.FINISHED, 0.5), log
    assert dict(trial.metrics) == {
        "val_loss": 0.5, "train.loss": 2.0, "mAP@0.5": 0.1, "a_b_": 2.0, "best": 0.125,
    }  # fmt: skip
    points = [(p.step, p.value) for p in lab.reader.trials.metric_history(trial.id, "val_loss")]
    assert points == [(0, 1.5), (1, 1.0), (2, 0.5)]
    assert log.count("'lr' was locked by 'sweep'") == 1
    assert re.search(r"'a\[b\]'.*'a_b_'", log) and "alert: done: all of it" in log
    assert trial.alerts == ("INFO done: all of it",)
    assert "INFO done: all of it" in lab.ok("show", f"{sid}/1")
    assert re.search(r"'picture' is dropped", log) and log.count("watch:") == 1
    told = json.loads(lab.ok("show", f"{sid}/1", "--provenance"))["attempts"]
    assert [a["attempt"] for a in told] == [1] and "redis" in told[0]["ran_on"]["packages"]
    assert trial.artifacts is not None
    assert {re.sub("[0-9a-f]{20}", "#", name) for name in trial.artifacts.files} == {
        "weights.bin", "artifacts/model/a/b.txt", "artifacts/model_artifact.json",
        "media/table/table_3_#.table.json", "media/html/page_3_#.html",
    }  # fmt: skip


FUNCTION = """
    import wandb
    from importlib.metadata import version

    def train():
        run = wandb.init()
        run.define_metric("acc", summary="max")
        run.define_metric("val/*", step_metric="epoch")
        for epoch, acc in enumerate((0.5, 0.75, 0.625)):
            run.log({"acc": acc, "epoch": 10 * epoch, "val/loss": wandb.config.x}, step=2 * epoch)
        run.log({"acc": 0.1}, step=1)                      # steps must rise
        run.summary["val/loss"] = 0.25                     # the summary is what counts
        run.log({"acc": 0.6}, commit=False)

    assert int(version("wandb").split(".")[1]) >= 20
    sweep_id = wandb.sweep({"method": "random", "parameters": {"x": {"min": 0, "max": 1}}})
    wandb.agent(sweep_id, function=train, count=5)
    assert wandb.run is None
"""


def test_an_agent_with_a_function_calls_it_once_with_the_trials_set(lab) -> None:
    lab.write("train.py", FUNCTION)
    sid = lab.enqueue(
        "program: train.py\nmethod: grid\nmetric: {name: acc.max, goal: maximize}\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    lab.worker(2)
    lab.wait_over(sid)
    for number in (1, 2):
        trial = lab.trial(sid, number)
        assert (trial.state, trial.objective) == (TrialState.FINISHED, 0.75), lab.printed(sid)
        assert dict(trial.metrics) == {
            "acc": 0.6, "acc.max": 0.75, "epoch": 20, "val/loss": 0.25,
        }  # fmt: skip
    history = lab.reader.trials.metric_history(lab.trial(sid, 2).id, "val/loss")
    assert [(p.step, p.value) for p in history][:3] == [(0, 2), (2, 2), (4, 2)]
    log = lab.printed(sid)
    assert "wandb.sweep:" in log and "wandb.agent:" in log  # what they ignore
    assert re.search(r"step 1 .*\b4\b", log)


FAULTS = {
    "wandb.init(); wandb.finish(exit_code=3)": "exit status 3",
    "wandb.init(); wandb.config.lrr": "lrr",
    "wandb.log({'loss': 1})": "You must call wandb.init() before wandb.log()",
    "wandb.init(); wandb.nonsense": "`wandb: real`",
    "wandb.Api().sweep('a/b/c')": "`hpq results --json`",
}


def test_what_goes_wrong_in_such_a_script_fails_its_trial_and_says_why(lab) -> None:
    lab.write("train.py", "import json, os, wandb\n"
              "exec(json.load(open(os.environ['HPQ_PARAMS']))['line'])\n")  # fmt: skip
    lines = json.dumps(list(FAULTS))
    sid = lab.enqueue(
        f"program: train.py\ncommand: ['{sys.executable}', train.py]\n"
        f"method: grid\nparameters: {{line: {{values: {lines}}}}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    for trial in lab.reader.trials.all(sid):
        assert trial.state == TrialState.FAILED and trial.failure is not None
        said = trial.failure.message + lab.printed(sid, trial.id.number)
        assert FAULTS[str(trial.params["line"])] in said


ENDS = [
    "with wandb.init() as run: run.log({'loss': 1}); sys.exit(0)",
    "try:\n  with wandb.init(reinit=True): raise ValueError\nexcept ValueError: pass\n"
    "with wandb.init() as run: run.log({'loss': 1})",
    "wandb.init().finish(exit_code=3); run = wandb.init(reinit=True); run.log({'loss': 1})",
    "wandb.init().log({'loss': 1}); wandb.finish(exit_code=3)",
]


def test_a_script_ends_as_it_says_itself_and_what_it_does_at_exit_is_done(lab) -> None:
    lab.write("train.py", "import atexit, json, os, sys\n"
              "atexit.register(print, 'the last word', flush=True)\nimport wandb\n"
              "exec(json.load(open(os.environ['HPQ_PARAMS']))['line'])\n")  # fmt: skip
    sid = lab.enqueue(
        f"program: train.py\ncommand: ['{sys.executable}', train.py]\nmethod: grid\n"
        f"metric: {{name: loss, goal: minimize}}\n"
        f"parameters: {{line: {{values: {json.dumps(ENDS)}}}}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    for trial in lab.reader.trials.all(sid):
        log = lab.printed(sid, trial.id.number)
        is_last = trial.params["line"] == ENDS[-1]
        assert trial.state == (TrialState.FAILED if is_last else TrialState.FINISHED), log
        assert log.count("the last word") == 1


def test_any_python_without_hpq_can_import_it_and_wandb(lab) -> None:
    """-I would hide PYTHONPATH, -S hides what is installed: as another environment has it."""
    lab.write("train.py", "import hpq, wandb\nwandb.init()\nhpq.report({'loss': wandb.config.x})\n")
    sid = lab.enqueue(
        f"program: train.py\ncommand: ['{sys.executable}', -S, train.py]\nmethod: grid\n"
        "metric: {name: loss}\nparameters: {x: {value: 3}}\n"
    )
    lab.worker(PYTHONPATH="")
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 3, lab.printed(sid)


REAL = """
    class Run:
        name, project, tags = "kind-sweep-1", "images", ("a", "b")
        def log(self, data, step=None, commit=None):
            print("real", data)
        def define_metric(self, name, step_metric=None, **kwargs):
            pass
        def _summary_update_callback(self, record):
            pass
"""


@pytest.mark.parametrize(("kind", "metrics"), [("tee", {"loss": 2.0}), ("real", {})])
def test_the_real_wandb_is_fed_as_well_or_alone(lab, kind: str, metrics: dict) -> None:
    """A package with the names that `tee` takes hold of; the real one is tried by hand."""
    package = lab.folder / "site" / "wandb"
    for folder in (package, package / "sdk"):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import sdk\nfrom .sdk.wandb_run import Run\n")
    (package / "sdk" / "__init__.py").write_text("from . import wandb_run\n")
    lab.write("run.py", REAL).rename(package / "sdk" / "wandb_run.py")
    lab.write(
        "train.py",
        "import os, wandb\nwandb.Run().log({'loss': 2})\n"
        "print(open(os.environ['WANDB_SWEEP_PARAM_PATH']).read())\n",
    )
    sid = lab.enqueue(
        f"program: train.py\nmethod: grid\nwandb: {kind}\nparameters: {{x: {{value: 1.0e-5}}}}\n"
    )
    lab.worker(PYTHONPATH=str(package.parent))
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, dict(trial.metrics)) == (TrialState.FINISHED, metrics), lab.printed(sid)
    assert (trial.run_name, trial.run_tags) == (
        ("kind-sweep-1", ("a", "b")) if kind == "tee" else ("", ())
    )
    assert lab.reader.sweeps.get(sid).project == ("images" if kind == "tee" else "")
    assert "real {'loss': 2}" in lab.printed(sid)
    assert "wandb_version: 1\nx:\n  value: 1.0e-05" in lab.printed(sid)


def test_which_wandb_is_signed(lab) -> None:
    lab.write("train.py", "print('loss=1')\n")
    sid = lab.enqueue("program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n")
    key = lab.keys.sweep(sid)
    launch = json.loads(lab.redis.hget(key, "launch"))
    assert launch["wandb"] == "stand-in"
    lab.redis.hset(key, "launch", json.dumps(launch | {"wandb": "real"}))
    lab.worker()
    lab.wait_until(lambda: "code-not-signed" in ids(lab.log()), "the refusal")
    lab.redis.hset(key, "launch", json.dumps(launch))
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).counts.finished == 2


HYDRA = """
    import hydra, os
    from omegaconf import DictConfig

    @hydra.main(version_base=None, config_path=".", config_name="conf")
    def main(cfg: DictConfig) -> None:
        made = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
        open(os.path.join(made, "w.pt"), "w").close()
        print(f"loss={cfg.db.lr * cfg.opt.layers[1]}")
        assert cfg.opt.name == "a b" and cfg.none is None and cfg.new == "x"

    main()
"""


def _hydra_python() -> str:
    """Return a Python that has Hydra; skip if there is none."""
    python = os.environ.get("ML_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import hydra"], capture_output=True).returncode:
        pytest.skip("hydra-core is not installed (ML_PYTHON names a Python that has it)")
    return python


HYDRA_READS = """
import json, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
with initialize_config_dir(version_base=None, config_dir=sys.argv[1]):
    made = compose("conf", overrides=sys.argv[2:])
print(json.dumps(OmegaConf.to_container(made)))
"""
TEXTS = [
    "plain", "a&b", "a,b", "a=b", "a b", "it's", 'say "hi"', "[1,2]", "{a: 1}", "${oc.env:HOME}",
    "", "null", "NULL", "1e-4", "true", "é日本", "a\\b", "a\\", '\\"', "\\\\", "~x", "*", "a:b",
    "(x)", "#c", "a#b", "!x", "@x", " lead", "trail ", "0x10", "1_000", "interval(1,2)",
    "choice(1,2)", "a\nb", "\t", "inf", "nan", "-1", "+x", "/data/x-1.5/y", "'q'", "a|b", "50%",
    "$", "a.b.c",
]  # fmt: skip


def test_hydra_reads_each_text_as_the_sweep_file_has_it(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("db: my\n")
    params = {f"t{n}": text for n, text in enumerate(TEXTS)}
    params |= {"list": TEXTS, "dict": {"a b": TEXTS, "c:d": {"e=f": None, "(g)": 1.5}}}
    command = (_hydra_python(), "-c", HYDRA_READS, str(tmp_path), "${args_override_hydra}")
    made = argv(command, "", params, environ={}, params_file="", interpreter="")
    done = subprocess.run(made, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"db": "my", **params}


def test_a_hydra_script_gets_overrides_and_writes_into_the_trials_artifacts(lab) -> None:
    python = _hydra_python()
    lab.write("train.py", HYDRA)
    lab.write("conf.yaml", "db: {lr: 1}\nopt: {layers: [], name: z}\nnone: 1\n")
    sid = lab.enqueue(
        f"""
        program: train.py
        command: ["{python}", "${{program}}", "${{args_override_hydra}}"]
        method: grid
        metric: {{name: loss}}
        parameters:
          db.lr: {{values: [0.5]}}
          opt.layers: {{value: [3, 4]}}
          opt.name: {{value: a b}}
          none: {{value: null}}
          new: {{value: x}}
        """
    )
    lab.worker(HPQ_STORE=str(lab.folder / "store"))
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.objective) == (TrialState.FINISHED, 2.0), lab.printed(sid)
    assert trial.artifacts is not None
    assert {"w.pt", ".hydra/overrides.yaml"} <= set(trial.artifacts.files)
    assert not (Path(lab.code) / "outputs").exists()


@pytest.mark.parametrize("store", ["", "store"])
def test_a_trial_uses_an_artifact_of_another_trial_or_sweep(lab, store: str) -> None:
    """Of a store that is a directory, or what trials of this machine left without one."""
    lab.write(
        "train.py",
        """
        import wandb

        with wandb.init() as run:
            lr = run.config.lr
            if lr == 1:
                artifact = wandb.Artifact("data-set", type="dataset", metadata={"rows": 2})
                with artifact.new_file("a/b.txt") as file:
                    file.write("rows")
                run.log_artifact(artifact, aliases=["raw"])
            else:
                used = run.use_artifact("me/demo/data-set:raw" if lr == 2 else lr)
                with open(used.download() + "/a/b.txt", "a+") as file:
                    file.write(", mine alone")
                wandb.log({"rows": used.metadata["rows"]})
            wandb.log({"val_loss": 1})
        """,
    )
    env = {"HPQ_STORE": str(lab.folder / store) if store else ""}
    sid = lab.enqueue(SWEEP.replace("[0.5]", "[1, 2]"))
    lab.worker(**env)
    lab.wait_over(sid)
    other = lab.enqueue(SWEEP.replace("[0.5]", f"['{sid}/data-set:v0', '{sid}/none']"))
    lab.wait_over(other)
    for trial in (lab.trial(sid, 2), lab.trial(other, 1)):
        assert trial.metrics.get("rows") == 2, lab.log()
    assert "CommError" in lab.printed(other, 2) and "hpq get" in lab.printed(other, 2)
    if store:
        lab.write("outside.py", f"""
            import wandb
            used = wandb.Api().artifact("{sid}/data-set:latest")
            print(open(used.file()).read(), used.metadata, used.version)
            try: wandb.Api().artifact("{sid}/none")
            except wandb.CommError as error: print(error)
        """)  # fmt: skip
        said = lab.ok("exec", sys.executable, "outside.py", **env).splitlines()
        assert said[0] == "rows {'rows': 2} v0" and f"{sid}/none" in said[1]


def test_api_has_the_nested_summary_the_files_and_the_artifacts_of_a_trial(lab) -> None:
    lab.write("train.py", """
        import wandb

        with wandb.init() as run:
            run.define_metric("val_loss", summary="min")
            for value in (run.config.lr, 2):
                run.log({"val_loss": value, "train": {"acc": value, "a.b": 1}, "v1.0": 7})
            run.summary["words"] = {"verdict": "good"}
            open("notes.txt", "w").write("kept")
            run.save("notes.txt")
            artifact = wandb.Artifact("model", type="model", metadata={"lr": run.config.lr})
            with artifact.new_file("w.txt") as file:
                file.write(f"weights {run.config.lr}")
            run.log_artifact(artifact)
    """)  # fmt: skip
    env = {"HPQ_STORE": str(lab.folder / "store")}
    sid = lab.enqueue(SWEEP.replace("[0.5]", "[0.5, 0.25]"))
    lab.worker(**env)
    lab.wait_over(sid)
    lab.write("outside.py", f"""
        import json, wandb
        first, second = wandb.Api().sweep("{sid}").runs
        print(json.dumps(second.summary_metrics))
        summary = second.summary
        print(summary["train"]["acc"], summary.train["a.b"], summary["words"]["verdict"])
        print(summary["val_loss"]["min"], sorted(summary), "val_loss.min" in summary)
        print([file.name for file in second.files()], len(second.files(pattern="n_tes.%")))
        print(second.file("notes.txt").size, second.file("none").size)
        print(second.file("notes.txt").download("got").read())
        try: second.file("notes.txt").download("got")
        except ValueError as error: print("again")
        print(second.file("notes.txt").download("got", exist_ok=True).read())
        for run in (first, second):
            (artifact,) = run.logged_artifacts()
            print(artifact.name, artifact.type, artifact.version, open(artifact.file()).read())
    """)  # fmt: skip
    said = lab.ok("exec", sys.executable, "outside.py", **env).splitlines()
    values = json.loads(said[0])
    assert values["train"] == {"acc": 2, "a.b": 1} and values["v1.0"] == 7
    assert values["val_loss"] == {"min": 0.25}
    assert said[1:] == [
        "2.0 1.0 good",
        "0.25 ['_runtime', '_step', 'train', 'v1.0', 'val_loss', 'words'] False",
        "['notes.txt'] 1",
        "4 0",
        "kept",
        "again",
        "kept",
        "model model v0 weights 0.5",
        "model model v1 weights 0.25",
    ]


def test_a_run_that_the_program_begins_before_its_agent_is_no_part_of_the_trial(lab) -> None:
    lab.write("train.py", """
        import os, time
        import wandb

        wandb.init(config={"lr": 99, "note": "of the script"})
        wandb.log({"val_loss": 0.0, "only": 1}, step=7)
        while not os.path.exists(os.environ["GATE"]): time.sleep(0.01)
        def train():
            with wandb.init(config={"lr": 99}) as run:
                for value in (0.7, 0.5):
                    run.log({"val_loss": value})
        wandb.agent("any", train)
    """)  # fmt: skip
    sid, gate = lab.enqueue(SWEEP + "    history: all\n"), lab.folder / "gate"
    store = lab.folder / "store"
    lab.worker(GATE=str(gate), HPQ_STORE=str(store))
    lab.wait_until(lambda: lab.trial(sid).metrics.get("only") == 1, "what Redis has of that run")
    gate.touch()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.metrics == {"val_loss": 0.5} and trial.best == 0.5 and trial.restarted
    history = lab.reader.trials.metric_history(trial.id, "val_loss")
    assert [(p.step, p.value) for p in history] == [(0, 0.7), (1, 0.5)]
    assert "note" not in trial.run_info.get("config", {})
    (rows,) = store.rglob("hpq-history.jsonl")
    assert "only" not in rows.read_text()
