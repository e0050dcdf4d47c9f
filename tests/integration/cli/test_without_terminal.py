"""Each command off a terminal, as an agent runs it: no prompt, -o json, errors with ids."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from hpq.domain.attempt import WorkerPresence
from hpq.error_codes import ExitCode
from hpq.store.trials import TrialStore
from hpq_producer.commands.table import WHERE
from tests.support.constants import DEADLINE_S
from tests.support.desk import Desk, Done, run_here
from tests.support.ids import ids
from tests.support.store_calls import end, fail, report, take

SWEEP = """\
program: train.py
method: grid
metric: {name: acc, goal: maximize}
parameters: {x: {values: [1, 2, 3, 4]}}
"""
# What prints data; {sid} is a sweep with two results, a failure and a queued trial.
DATA = {
    "enqueue": "enqueue sweep.yaml",
    "plan": "plan sweep.yaml",
    "watch": "watch {sid} --once",
    "ls": "ls",
    "show": "show {sid}/3",
    "summary": "summary {sid}",
    "diff": "diff {sid}/1 {sid}/2",
    "best": "best {sid}",
    "results": "results {sid}",
    "workers": "workers",
    "wait": "wait {sid} --timeout 0",
    "add": "add {sid} --count 1",
    "pause": "pause {sid}",
    "resume": "resume {sid}",
    "stop": "stop {sid} --yes",
    "cancel": "cancel {sid} --where x>3 --yes",
    "retry": "retry {sid}",
    "set": "set {sid} priority=1",
    "rm": "rm {sid} --yes",
    "drain": "drain --all",
    "doctor": "doctor",
    "user": "user",
    "audit": "audit {sid}",
    "redis-acl": "redis-acl",
    "archive": "archive {sid} file.hpq",
    "connect": "connect",
}
# What prints one word, such as a path or a token; a text, such as a log; or a file of other tools.
# Each line fails at once, off a terminal.
OTHER = {
    "init": "init none.py",
    "run": "run none.yaml",
    "exec": "exec",
    "try": "try none.yaml",
    "worker": "worker --queue a/b",
    "invite": "invite --for x",
    "join": "join",
    "leave": "leave now",
    "logs": "logs none-12345",
    "get": "get none-12345/1",
    "dashboard": "dashboard --port x",
    "report": "report none-12345",
    "export": "export none-12345",
    "mcp": "mcp none",
    "manifests": "manifests --file none.yaml",
    "slurm": "slurm --workers x",
    "data": "data none",
}
ASKS = {
    "stop": "stop {sid}",
    "cancel": "cancel {sid}",
    "retry": "retry {sid}/1",
    "rm": "rm {sid}",
}


class Unread(io.StringIO):
    """A stdin that no command may read."""

    def isatty(self) -> bool:
        return False

    def readline(self, size: int | None = -1) -> str:
        raise AssertionError("the command reads stdin")

    read = readline


@pytest.fixture
def sid(desk: Desk, store: TrialStore, who: WorkerPresence) -> str:
    found = desk.sweep(SWEEP)
    for value in (0.5, 0.9):
        got = take(store, who)
        report(store, who, got, acc=[value])
        end(store, got, value)
    fail(store, take(store, who), "no luck")
    return found


def run(line: str, sid: str, *more: str) -> Done:
    words = [word.format(sid=sid) for word in line.split()]
    return run_here([*words, *more], stdin=Unread())


def test_the_tables_of_this_file_have_every_command() -> None:
    assert sorted([*DATA, *OTHER]) == sorted(WHERE)


@pytest.mark.parametrize("name", DATA)
def test_data_is_one_value_of_json(name: str, sid: str) -> None:
    done = run(DATA[name], sid, "-o", "json")
    found = json.loads(done.stdout)
    assert done.returncode in list(ExitCode), done
    if done.returncode and "error" in found:
        assert ids(done.stderr)[-1] == found["error"]["code"] != "usage", done


@pytest.mark.parametrize("name", OTHER)
def test_an_error_has_an_id_and_an_exit_code_and_is_json_on_request(name: str, desk: Desk) -> None:
    stdin = io.StringIO("") if name == "join" else Unread()  # of a token
    plain = run_here(OTHER[name].split(), stdin=stdin)
    assert plain.returncode in (2, 4) and ids(plain.stderr), plain
    assert plain.stdout == ""
    if name == "exec":  # passes each word on to the program
        return
    done = run_here([*OTHER[name].split(), "--json"], stdin=stdin)
    assert done.returncode in (2, 4), done
    assert json.loads(done.stdout)["error"]["code"] in ids(done.stderr)


@pytest.mark.parametrize("name", ASKS)
def test_what_asks_on_a_terminal_is_refused_off_one_with_the_option_to_add(
    name: str, desk: Desk, sid: str
) -> None:
    done = run(ASKS[name], sid)
    assert (done.returncode, ids(done.stderr)) == (2, ["confirmation-missing"]), done
    assert desk.reader.sweeps.get(sid).counts.queued == 1


@pytest.mark.parametrize("name", ["pause", "resume", "stop", "cancel", "retry", "set"])
def test_a_command_that_changes_a_sweep_answers_with_the_sweep_as_it_is_then(
    name: str, desk: Desk, sid: str
) -> None:
    found = json.loads(run(DATA[name], sid, "-o", "json").stdout)
    now = json.loads(run("ls", sid, "-o", "json").stdout)[0]
    assert found.pop("done") and found == now


@pytest.mark.parametrize("line", ["rm {sid}", "join", "mcp ."])
def test_a_closed_stdin_is_an_empty_one(line: str, desk: Desk, sid: str) -> None:
    if line.startswith("mcp"):
        pytest.importorskip("mcp")
    words = [sys.executable, "-m", "hpq_producer", *line.format(sid=sid).split()]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == (0 if line.startswith("mcp") else 2), done
    assert "Traceback" not in done.stderr
