"""What the command line says of itself: help, completion, and words that it does not know."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hpq.domain.sweep import SweepView
from hpq.errors import UserError
from hpq.settings import ABOUT
from hpq_producer.cli import Lazy
from hpq_producer.commands.table import ALIASES, COMMANDS, WHERE
from tests.support.constants import DEADLINE_S
from tests.support.desk import Desk
from tests.support.ids import ids, refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    "words", ["ls --nope", "enqueue", "best -n x", "ls -o xml", "--nope", "nope"]
)
def test_words_that_are_not_understood_are_one_line_and_exit_2(hpq: Hpq, words: str) -> None:
    answer = hpq(*words.split())
    (line,) = answer.stderr.splitlines()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert line.startswith("hpq: ") and "--help` " in line and "Value error" not in line


def test_only_hpq_itself_installs_completion_and_no_flag_has_a_negation(hpq: Hpq) -> None:
    assert "hpq --install-completion" in hpq("--help").stdout
    for command in ("watch", "ls", "retry", "enqueue"):
        shown = hpq(command, "--help").stdout
        assert "-completion" not in shown and "--no-" not in shown


def test_plan_takes_the_options_of_enqueue_but_for_those_of_a_new_sweep(hpq: Hpq) -> None:
    def options(command: str) -> set[str]:
        return set(re.findall(r"(?m)^\W*(--[a-z-]+)", hpq(command, "--help").stdout))

    of_a_new_sweep = {"--new", "--tag", "--reuse", "--any-code"}
    shared = options("enqueue")
    assert options("run") == shared | {"--workers", "--gpus", "--trials-per-gpu"}
    assert options("plan") == (shared - of_a_new_sweep) | {"--first", "--files"}
    assert of_a_new_sweep < shared


@pytest.mark.parametrize("name", ALIASES)
def test_a_command_of_another_tool_names_the_command_of_hpq(name: str) -> None:
    found = ALIASES[name].split("/")
    assert name not in WHERE and set(found) <= set(WHERE)
    with pytest.raises(UserError, match=".*".join(f"`hpq {one}`" for one in found)) as error:
        Lazy().resolve_command(None, [name])
    assert error.value.code == "command-unknown"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("best -n x", "-n/--top: write a whole number, such as 3"),
        ("best -n 0", "-n/--top: write 1 or more"),
        ("wait --timeout x", "--timeout: write a number, such as 0.5"),
        ("dashboard --port 99999", "--port: write 65535 or less"),
        ("enqueue", "missing FILE, e.g. hpq enqueue sweep.yaml"),
        ("results --sort", "Option '--sort' requires an argument: --sort NAME"),
    ],
)
def test_a_flag_with_a_wrong_value_is_named_with_what_to_write(
    hpq: Hpq, words: str, what: str
) -> None:
    done = hpq(*words.split())
    refused(done, "usage")
    assert (
        done.stderr.startswith(f"hpq: {what}") and f"`hpq {words.split()[0]} --help`" in done.stderr
    )


@pytest.mark.parametrize(
    ("word", "meant"), [("trian", "`hpq run`"), ("rum", "`hpq rm`"), ("enqeue", "`hpq enqueue`")]
)
def test_a_misspelled_command_names_the_nearest(hpq: Hpq, word: str, meant: str) -> None:
    refused(hpq(word), "command-unknown", meant)


def test_a_variable_that_is_no_setting_is_warned_of_once(hpq_process: Hpq) -> None:
    done = hpq_process("ls", HPQ_LEES_S="3")
    assert done.returncode == 0 and ids(done.stderr).count("setting-unknown") == 1


@pytest.mark.parametrize("program", ["", "no-such-program"])
def test_exec_names_a_program_that_is_not_there(hpq_process: Hpq, program: str) -> None:
    done = hpq_process("exec", program)
    assert done.returncode == 2 and ids(done.stderr) == ["program-missing"]


def test_a_worker_in_a_pod_warns_of_a_variable_that_is_no_setting() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HPQ_LEES_S": "3", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-m", "hpq_worker"], env=pod, capture_output=True, text=True, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 2 and ids(done.stderr) == ["setting-unknown", "setting-missing"]


@pytest.mark.parametrize("words", ["list", "status", "delete x", "agent x", "top --json"])
def test_a_command_of_another_tool_is_refused(hpq: Hpq, words: str) -> None:
    refused(hpq(*words.split()), "command-unknown")


def test_help_has_three_spellings_and_hpq_has_a_version(hpq: Hpq) -> None:
    shown = hpq("ls", "--help").stdout
    assert shown and shown == hpq("ls", "-h").stdout == hpq("help", "ls").stdout
    assert hpq("help").stdout == hpq("-h").stdout == hpq("--help").stdout
    assert hpq("help", "help").stdout == hpq("help").stdout
    assert hpq("--version").stdout.startswith("hpq ")


def test_the_commands_of_an_operator_stand_apart_and_last() -> None:
    last = list(COMMANDS)[-1]
    assert {"manifests", "drain", "user", "redis-acl", "audit"} == COMMANDS[last].keys()


def test_data_is_json_yaml_or_csv(hpq: Hpq, sweep_of: Callable[..., SweepView]) -> None:
    sid = sweep_of(2).id
    data = json.loads(hpq("ls", "-o", "json").stdout)
    assert data[0]["id"] == sid and data == json.loads(hpq("ls", "--json").stdout)
    assert yaml.safe_load(hpq("ls", "-o", "yaml").stdout) == data
    (row,) = csv.DictReader(hpq("ls", "-o", "csv").stdout.splitlines())
    assert row["id"] == sid and row["queued"] == "2"
    assert hpq("ls", "-o", "table").stdout.startswith("sweep ")
    queued = ("results", sid, "--where", "state == queued")
    assert hpq(*queued, "-o", "csv").stdout == hpq(*queued, "--csv").stdout
    assert len(yaml.safe_load(hpq(*queued, "-o", "yaml").stdout)) == 2


@pytest.mark.parametrize("columns", [80, 100, 300])
def test_a_narrow_terminal_wraps_the_meaning_of_a_setting(hpq: Hpq, columns: int) -> None:
    lines = hpq("doctor", "--settings", COLUMNS=str(columns)).stdout.splitlines()
    at = lines[0].index("meaning")
    assert max(map(len, lines)) <= columns
    shown = " ".join(" ".join(line[at:] for line in lines).split())
    assert all(
        " ".join(what.split()) in shown for field, what in ABOUT.items() if field != "redis_url"
    )


@pytest.mark.parametrize(
    ("streams", "words", "code"),
    [
        (">&- 2>&- <&-", "run sweep.yaml --workers 1", 0),
        (">&-", "--version", 0),
        ("2>&-", "plan nowhere.yaml --json", 2),
        ("1</dev/null", "plan sweep.yaml", 0),
        ("<&-", "rm --yes nothing", 4),
    ],
)
def test_a_command_works_without_its_streams(
    desk: Desk, tmp_path: Path, streams: str, words: str, code: int
) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
    )
    line = f"{shlex.join([sys.executable, '-m', 'hpq_producer'])} {words} {streams}"
    answer = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert answer.returncode == code and "internal" not in ids(answer.stderr), answer
    if words.startswith("run"):
        (sid,) = desk.reader.sweeps.ids(2)
        assert desk.reader.sweeps.get(sid).counts.finished == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["doctor --settings", "--help", "ls --json"])
def test_a_disk_that_is_full_is_no_fault_of_hpq_s(
    environ: dict[str, str], unbuffered: str, words: str
) -> None:
    with open("/dev/full", "w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "hpq_producer", *words.split()],
            env={**environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    refused(answer, "disk-full")


def test_a_default_stands_in_the_help_where_it_is_worked_out(hpq: Hpq) -> None:
    made = " ".join(hpq("manifests", "--help").stdout.split())
    assert "(default: hpq)" in made
    shown = " ".join(hpq("ls", "--help").stdout.split())
    assert "'state == held'" in shown and "'lr > 0.1'" not in shown


def test_a_shell_completes_the_ids_of_sweeps(
    hpq: Hpq, sweep_of: Callable[..., SweepView], tmp_path: object
) -> None:
    for sid in ("grid-00000", "grid-11111", "other-00000"):
        sweep_of(1, sid)

    def complete(**env: str) -> subprocess.CompletedProcess[str]:
        words = {"COMP_WORDS": "hpq show gr", "COMP_CWORD": "2", **env}
        return hpq(_HPQ_COMPLETE="complete_bash", **words)

    for typed in ("hpq nope x", "hpq help x", "hpq sweep x", "hpq 'show x"):
        answer = complete(COMP_WORDS=typed)
        assert (answer.stdout.strip(), answer.stderr) == ("", ""), typed
    assert sorted(complete().stdout.split()) == ["grid-00000", "grid-11111"]
    for away in ("redis://127.0.0.1:1/0", "nonsense", ""):
        answer = complete(HPQ_REDIS_URL=away, HPQ_HOME=f"{tmp_path}/none")
        assert (answer.stdout.strip(), answer.stderr) == ("", "")
