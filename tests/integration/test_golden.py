"""What commands say when they refuse, as tests/golden/COMMAND.txt has it, and how help looks."""

from __future__ import annotations

import shlex

import pytest

from hpq.domain.sweep import SweepView
from tests.conftest import MakeSweep
from tests.support.desk import Desk, run_here
from tests.support.golden import Golden
from tests.support.ids import ids

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


@pytest.mark.parametrize("name", ["results", "try"])
def test_help_shows_usage_arguments_options_and_examples(golden: Golden, name: str) -> None:
    """docs/reference/commands.md has the words of all commands."""
    golden.check(name, "help", run_here([name, "--help"], env={"COLUMNS": "100"}).stdout)


# What refuses beside one sweep of two trials, demo-00000; the file sweep.yaml asks for the same.
REFUSED = (
    "archive", "audit nope", "best nope", "cancel demo-00000",
    "cancel demo-00000 1 --where x", "connect --role owner", "connect --status --stop",
    "drain", "drain w-0", "enqueue nope.yaml", "enqueue sweep.yaml --set lr",
    "export nope x --to optuna",
    "enqueue sweep.yaml --set methd=grid", "enqueue sweep.yaml --set method=gird",
    "enqueue sweep.yaml --tag 'a b'", "get demo-00000", "get demo-00000/1", "init nope.py",
    "init .", "logs demo-00000", "logs nope/1", "ls --where 'x >'", "ls --where 'nope == 1'",
    "manifests --namespace A", "manifests --gpus 70", "manifests --with tls",
    "manifests nope.yaml", "plan nope.yaml",
    "plan sweep.yaml --set run_cap=0", "pause nope",
    "redis-acl --server-version x", "results --sort nope --where 'state == queued'",
    "results nope", "resume nope",
    "add --from 7", "archive --restore nope.hpq", "best demo-00000 --by acccc", "best 99", "cancel",
    "data imagenet", "data cifar10 train.py/x", "enqueue sweep.yaml --code nope",
    "enqueue sweep.yml", "init sweep.yaml", "join nope", "ls --where 'state == runing'",
    "plan", "results --sort", "results -n 3", "rm", "run nope", "stop", "try",
    "retry demo-00000/9", "rm demo-00000", "set demo-00000", "set demo-00000 nope=1",
    "set demo-00000 run_cap=x", "show demo-00000/9", "show nope",
    "stop nope", "summary nope", "wait nope", "wait --timeout 0",
    "watch --json", "worker --trial demo-00000 --count 1",
)  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_a_command_says_when_it_refuses(
    golden: Golden, desk: Desk, redis_url: str, sweep_of: MakeSweep, line: str
) -> None:
    sweep: SweepView = sweep_of(2)
    assert sweep.id == "demo-00000"
    (desk.folder / "sweep.yaml").write_text(SWEEP)
    done = desk.hpq(*shlex.split(line))
    assert done.returncode > 1 and ids(done.stderr), (done.stdout, done.stderr)
    said = done.stderr.replace(str(desk.folder), "FOLDER").replace(redis_url, "REDIS")
    golden.check(line.split()[0], f"$ hpq {line}", f"exit {done.returncode}\n{said}")


def test_an_error_is_an_object_with_json(desk: Desk) -> None:
    done = desk.hpq("best", "nope", "--json")
    assert done.returncode == 4 and '"code": "sweep-not-found"' in done.stdout
