"""A trial changes the code that it runs from: no other trial runs what it wrote."""

from __future__ import annotations

import pytest

# Python reads such bytecode without a look at the module's source.
POISON = """
    import os, py_compile, sys
    from importlib.util import cache_from_source
    from pathlib import Path

    def poison(here, out):
        evil, model = Path(out, "evil.py"), here / "model.py"
        evil.write_text("value = 666\\n")
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        os.makedirs(here / "__pycache__", exist_ok=True)
        py_compile.compile(evil, cache_from_source(model), invalidation_mode=unchecked)
        was = model.stat()
        model.write_text("value = 6\\n")
        os.utime(model, ns=(was.st_atime_ns, was.st_mtime_ns))
        with open(__file__, "a") as itself:
            itself.write("raise SystemExit('evil')\\n")
        for name in ("json", "colorsys"):
            (here / f"{name}.py").write_text("raise SystemExit('evil')\\n")
"""
PROGRAM = (
    POISON.replace("import os,", "import colorsys, os,")
    + """
    if sys.argv[1] == "--x=1":
        poison(Path(__file__).parent, os.environ["HPQ_OUT"])
        print("loss=0")
    else:
        import model
        print(f"loss={model.value}")
"""
)
TRAINER = (
    POISON
    + """
    def train(params, trial):
        if params["x"] == 1:
            Path(os.environ["TMPDIR"]).mkdir(exist_ok=True)
            poison(Path(__file__).parent, os.environ["TMPDIR"])
            return {"loss": 0}
        import colorsys, model
        return {"loss": model.value}
"""
)
KINDS = {
    "program": "program: train.py",
    "module": 'command: ["${interpreter}", -m, train, "${args}"]',
    "sent": "program: train.py\ncode: .",
    "preload": "program: train.py\npreload: [heavy]",
    "resident": "trainer: mine:train\nresident: true",
}
SWEEP = """
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1, 2]}}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_trial_writes_into_its_code_reaches_no_later_trial_of_any_owner(lab, kind) -> None:
    lab.write("train.py", PROGRAM)
    lab.write("mine.py", TRAINER)
    lab.write("model.py", "value = 1\n")
    (lab.folder / "libraries").mkdir()
    (lab.folder / "libraries" / "heavy.py").touch()
    env = {"PYTHONPATH": str(lab.folder / "libraries"), "TMPDIR": str(lab.folder / "tmp")}
    (lab.folder / "tmp").mkdir()
    text = f"{KINDS[kind]}{SWEEP}"
    first = lab.enqueue(text, **env)
    second = lab.enqueue(text, "--new", HPQ_USER="other", **env)
    both = [lab.reader.sweeps.get(sid) for sid in (first, second)]
    assert both[0].launch.code == both[1].launch.code and both[0].owner != both[1].owner
    lab.worker(**env)
    for sid in (first, second):
        lab.wait_over(sid)
    found = [t.objective for sid in (first, second) for t in lab.reader.trials.all(sid)]
    assert found == [0.0, 1.0, 0.0, 1.0], lab.log()
    assert (lab.code / "model.py").read_text() == "value = 1\n"
    assert not (lab.code / "json.py").exists()


def test_the_process_of_a_resident_trainer_serves_one_owner(lab) -> None:
    """Modules in its memory are as the trials before have left them."""
    lab.write("mine.py", "import os\ndef train(params, trial): return {'loss': os.getpid()}\n")
    text = f"{KINDS['resident']}{SWEEP}"
    sids = [lab.enqueue(text, "--new", HPQ_USER=who) for who in ("ana", "ana", "ben")]
    lab.worker()
    for sid in sids:
        lab.wait_over(sid)
    found = [{t.objective for t in lab.reader.trials.all(sid)} for sid in sids]
    assert found[0] == found[1] and len(found[0] | found[2]) == 2
