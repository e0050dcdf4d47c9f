"""Whose printed lines are metrics: decided from the code alone."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from hpq.domain.sweep import Launch, Wandb
from hpq_producer.enqueue.reporter import reporter

LAUNCH = Launch(program="train.py", wandb=Wandb.STAND_IN)
PLAIN = "print('loss=1')\n"
ALL = {"pkg/train.py", "pkg/__init__.py", "pkg/__main__.py", "other.py"}
WANDB = "\nimport wandb\nprint('loss=1')\n"


def _of(launch: Launch, code: dict[str, str]) -> str:
    found = reporter(launch, {name: (text.encode(), 0o644) for name, text in code.items()})
    return f"{found.place} {found.by}" if found else ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN, ""),
        ("# wandb is not used\nx = 'import wandb'\n", ""),
        ("import wandbox, hpq\n", ""),
        ("def report(): ...\nreport()\n", ""),
        ("trial.report({'loss': 1})\n", ""),
        (WANDB, "train.py:2 wandb"),
        ("def f():\n    import wandb.sdk as w\n", "train.py:2 wandb"),
        ("try:\n    from wandb import log\nexcept ValueError: 1", "train.py:2 wandb"),
        ("from lightning.pytorch.loggers import WandbLogger\n", "train.py:1 wandb"),
        ("Trainer(args=Arguments(report_to=['wandb']))\n", "train.py:1 wandb"),
        ("Trainer(args=Arguments(report_to='none', name='wandb'))\n", ""),
        ("from hpq import wandb\n", "train.py:1 wandb"),
        ("import hpq as h\n\nh.report({'loss': 1})\n", "train.py:3 hpq.report"),
        ("from hpq import report\n", "train.py:1 hpq.report"),
        ("import wandb\nthis is no Python\n", ""),
        ("if TYPE_CHECKING:\n    import wandb\n", ""),
        ("if t.TYPE_CHECKING:\n    import wandb\nelse:\n    import wandb\n", "train.py:4 wandb"),
        ("if not TYPE_CHECKING:\n    import wandb\n", "train.py:2 wandb"),
        ("importlib.import_module('wandb.sdk')\n", "train.py:1 wandb"),
        ("importlib.import_module('wandbox')\nprint('wandb')\n", ""),
        ("Trainer(args=Arguments(report_to='all'))\n", "train.py:1 wandb"),
        ("lightning.pytorch.loggers.WandbLogger()\n", "train.py:1 wandb"),
        ("print(args.wandb)\n", ""),
        ("from hpq import *\n", "train.py:1 hpq.report"),
        ("import hpq.reporting as r\nr.report({'loss': 1})\n", "train.py:2 hpq.report"),
    ],
)  # fmt: skip
def test_a_script_that_reports_otherwise_is_found(text: str, reason: str) -> None:
    assert _of(LAUNCH, {"train.py": text}) == reason


def test_a_class_of_the_code_itself_counts_by_what_its_own_file_imports() -> None:
    code = {"train.py": "from conf import WandbConf\n", "conf.py": "class WandbConf: ...\n"}
    assert _of(LAUNCH, code) == ""
    assert _of(LAUNCH, {**code, "conf.py": WANDB}) == "conf.py:2 wandb"


def test_no_file_is_parsed_once_each_that_may_report_was_read(monkeypatch) -> None:
    parsed, parse = [], ast.parse
    code = {f"m{i}.py": f"import m{i + 1}\n" for i in range(50)}
    code |= {"train.py": "import m0\n", "m3.py": "import m4  # wandb\n"}
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", lambda text: parsed.append(text) or parse(text))
        assert not _of(LAUNCH, code)
    assert len(parsed) == 5


def test_with_the_real_wandb_printed_lines_are_metrics_unless_hpq_report_is_called() -> None:
    launch = replace(LAUNCH, wandb=Wandb.REAL)
    assert _of(launch, {"train.py": WANDB}) == ""
    assert _of(launch, {"train.py": WANDB + "import hpq; hpq.report({})\n"})
    assert _of(replace(LAUNCH, wandb=Wandb.TEE), {"train.py": WANDB})


@pytest.mark.parametrize(
    ("line", "file", "is_run"),
    [
        ("import lib.log", "lib/log.py", True),
        ("from lib import log", "lib/log.py", True),
        ("import lib.other", "lib/__init__.py", True),
        ("from lib.log import start", "src/lib/log.py", True),
        ("import log", "lib/log.py", False),
        ("import lib", "lib/log.py", False),
    ],
)
def test_the_modules_that_a_script_imports_are_read_and_no_others(
    line: str, file: str, is_run: bool
) -> None:
    assert bool(_of(LAUNCH, {"train.py": line, file: WANDB})) == is_run
    deeper = {
        "train.py": "from a import b",
        "a/b.py": "from .. import c\nfrom . import d\nimport e",
    }
    for relative in ("a/d.py", "e.py"):
        assert _of(LAUNCH, {**deeper, relative: WANDB}) == f"{relative}:2 wandb"


@pytest.mark.parametrize(
    ("command", "program", "read"),
    [
        (("python", "-m", "pkg.train"), "", {"pkg/train.py", "pkg/__init__.py"}),
        (("python", "-m", "pkg"), "", {"pkg/__main__.py", "pkg/__init__.py"}),
        (("torchrun", "${program}", "${args}"), "pkg/train.py", {"pkg/train.py"}),
        (("bash", "-c", "cd pkg && python train.py"), "", {"pkg/train.py"}),
        (("bash", "${program}"), "run.sh", {"pkg/train.py"}),
        (("bash", "${program}"), "plain.sh", set()),
        (("${program}", "${args}"), "console", ALL),
    ],
)  # fmt: skip
def test_the_files_that_a_command_starts_are_read(
    command: tuple[str, ...], program: str, read: set[str]
) -> None:
    scripts = {"run.sh": "cd pkg; accelerate launch train.py", "plain.sh": "Rscript train.R"}
    launch = replace(LAUNCH, command=command, program=program)
    code = {**scripts, **dict.fromkeys(ALL, PLAIN)}
    found = {name for name in ALL if _of(launch, {**code, name: WANDB})}
    assert found == read
