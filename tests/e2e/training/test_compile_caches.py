"""Where torch.compile keeps what it compiled: one place for all trials, unless the user has one."""

from __future__ import annotations

import pytest

NAMES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# A compiler: what it finds it need not make again.
COMPILES = """
    import os
    from pathlib import Path

    def compiles():
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            kernel = Path(os.environ[name]) / "kernel"
            print(name, os.environ[name], "warm" if kernel.exists() else "cold", flush=True)
            kernel.parent.mkdir(parents=True, exist_ok=True)
            kernel.touch()
"""
PROGRAM = "\n    compiles()\n    print('loss=1')\n"
TRAINER = "\n    def train(params, trial):\n        compiles()\n        return {'loss': 1}\n"
SWEEP = "method: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"


def told(lab, sid: str, number: int) -> dict[str, tuple[str, str]]:
    lines = [line.split() for line in lab.printed(sid, number).splitlines()]
    return {words[0]: (words[1], words[2]) for words in lines if words[0] in NAMES}


@pytest.mark.slow
def test_every_trial_finds_what_the_ones_before_compiled_whatever_runs_it(lab) -> None:
    lab.write("train.py", COMPILES + PROGRAM)
    lab.write("compiled.py", COMPILES + TRAINER)
    lab.env |= dict.fromkeys(NAMES, "")  # an empty variable is none
    first = lab.enqueue("program: train.py\n" + SWEEP)
    lab.worker(1, "--count", "2")
    lab.wait_over(first)
    assert lab.workers[0].wait() == 0
    cache = lab.home / "cache"
    places = {NAMES[0]: str(cache / "inductor"), NAMES[1]: str(cache / "triton")}
    assert told(lab, first, 1) == {name: (place, "cold") for name, place in places.items()}
    warm = {name: (place, "warm") for name, place in places.items()}
    assert told(lab, first, 2) == warm
    second = lab.enqueue("trainer: compiled:train\nresident: true\n" + SWEEP)
    lab.worker()  # another worker, which has tidied first
    lab.wait_over(second)
    assert [told(lab, second, number) for number in (1, 2)] == [warm, warm]
    assert "removed" not in lab.log() and "cache" not in lab.hpq("doctor").stdout


def test_in_a_pod_what_is_compiled_lies_there_as_well(lab) -> None:
    lab.write("train.py", COMPILES + PROGRAM)
    sid = lab.enqueue("program: train.py\n" + SWEEP)
    lab.worker(KUBERNETES_SERVICE_HOST="10.0.0.1", TRITON_CACHE_DIR=str(lab.folder / "mine"))
    lab.wait_over(sid)
    assert told(lab, sid, 1) == {
        NAMES[0]: (str(lab.home / "cache" / "inductor"), "cold"),
        NAMES[1]: (str(lab.folder / "mine"), "cold"),  # the user has said
    }


def test_where_the_user_has_said_where_torch_compiles_triton_follows_torch(lab) -> None:
    lab.write(
        "train.py",
        "import os\nfor name in ('TRITON_CACHE_DIR', 'CUDA_DEVICE_ORDER'):\n"
        "    print(name, os.environ.get(name))\nprint('loss=1')\n",
    )
    sid = lab.enqueue("program: train.py\n" + SWEEP)
    lab.worker(TORCHINDUCTOR_CACHE_DIR=str(lab.folder / "mine"))
    lab.wait_over(sid)
    printed = lab.printed(sid, 1)
    assert "TRITON_CACHE_DIR None" in printed
    assert "CUDA_DEVICE_ORDER PCI_BUS_ID" in printed  # as nvidia-smi numbers the GPUs of slots
