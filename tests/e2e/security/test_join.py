"""Two machines: `hpq invite`, `hpq join` and `hpq leave` with a real server, homes and accounts."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from redis import Redis

from hpq.code.signing import fingerprint
from tests.support.commands import HPQ, run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused
from tests.support.lab import STEERED, Lab, MakeLab

PASSWORD = "s3cr3t-Passw0rd"
SWEEP = "program: {}\nmethod: grid\nparameters: {{x: {{values: [1, 2]}}}}\n"


class Machine:
    """A second machine: a home and an account of its own, without settings of hpq."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.folder = lab, lab.folder / name
        self.home = self.folder / ".hpq"
        self.folder.mkdir()
        kept = {n: v for n, v in lab.env.items() if not n.startswith("HPQ_")}
        quick = {n: lab.env[n] for n in ("HPQ_REAP_S", "HPQ_GRACE_S")}
        own = {"HOME": str(self.folder), "USER": name, "LOGNAME": name}
        self.env = {**kept, **quick, **own, "HPQ_NODE": name}

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        return run_hpq(words, self.folder, self.env | env, DEADLINE_S)

    def ok(self, *words: object, **env: str) -> str:
        done = self.hpq(*words, **env)
        assert done.returncode == 0, done
        return done.stdout

    def token(self, name: str = "token") -> Path:
        """Invite this machine; return the file that its user copied."""
        path = self.folder / name
        self.lab.ok("invite", "--file", path)
        return path

    def join(self, token: Path) -> subprocess.Popen[bytes]:
        """Start `hpq join < token`, which becomes a worker."""
        log = self.folder / "join.log"
        self.lab._logs.append(log)
        with token.open("rb") as source, log.open("ab") as out:
            process = subprocess.Popen(
                [HPQ, "join"], cwd=self.folder, env=self.env, stdin=source, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.lab.workers.append(process)
        return process


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """A lab whose server has a password."""
    return steered_anywhere(
        make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    )


def steered_anywhere(lab: Lab) -> Lab:
    """Let the steered trainer find its files from another machine, too."""
    lab.write("steered.py", STEERED.replace("Path.cwd()", f"Path({str(lab.code)!r})"))
    return lab


@pytest.fixture
def second(lab: Lab) -> Machine:
    return Machine(lab, "bob")


def modes(folder: Path) -> set[str]:
    return {oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}


def test_a_second_machine_joins_runs_sweeps_of_both_users_and_leaves(
    lab: Lab, second: Machine
) -> None:
    """Neither machine needs a setting of the other; no secret is on a command line or in a log."""
    token = second.token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    text = token.read_text().strip()
    worker = second.join(token)
    lab.wait_until(lambda: lab.reader.workers.live(), "the worker of the second machine")
    sid = lab.steered(2)
    lab.wait_for("began-1-1")
    folder = second.home / "join"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and modes(folder) == {"0o600"}
    key = (lab.home / "code.key").read_text()
    shown = (
        lab.log() + "".join(lab.processes().values()) + second.ok("doctor", "--settings", "--json")
    )
    assert fingerprint(key.encode()) in shown and f"joined unix://{lab.server.socket}" in shown
    assert not [secret for secret in (PASSWORD, key, text) if secret in shown]
    lab.go()
    lab.wait_over(sid)
    assert {t.host for t in lab.reader.trials.all(sid)} == {"bob"}

    (second.folder / "seen.py").write_text("import os\nprint(dict(os.environ))\n")
    (second.folder / "sweep.yaml").write_text(SWEEP.format("seen.py"))
    other = second.ok("enqueue", "sweep.yaml").strip()
    lab.wait_over(other)
    assert lab.reader.sweeps.get(other).owner == "bob"
    assert PASSWORD not in lab.printed(other) and key not in lab.printed(other)
    assert {row["id"] for row in json.loads(second.ok("ls", "--json"))} == {sid, other}

    assert "stopped 1 `hpq worker`" in second.hpq("leave").stderr
    assert worker.wait(DEADLINE_S) == 0 and not folder.exists()
    assert json.loads(second.ok("doctor", "--settings", "--json"))["HPQ_REDIS_URL"] == ""
    assert second.hpq("leave").returncode == 0


def test_a_trial_of_the_first_machine_runs_again_on_the_second_only_once_it_has_joined(
    lab: Lab, second: Machine
) -> None:
    lab.write("train.py", "import os, sys\nprint(sys.argv[1:], os.environ['HPQ_SEED'])\n")
    sid = lab.enqueue(SWEEP.format("train.py"))
    lab.write("train.py", "print('edited')\n")
    ran = "['--x=2'] 0\n"
    words = ("try", f"{sid}/2", "--as-enqueued")
    uninvited = Machine(lab, "eve")  # knows the password, but no key
    uninvited.env["HPQ_REDIS_URL"] = lab.env["HPQ_REDIS_URL"]
    for key in ({}, {"HPQ_CODE_KEY": "her own, of 16 letters"}):
        done = uninvited.hpq(*words, **key)
        assert done.returncode == 4 and "edited" not in done.stdout, done
        assert ids(done.stderr)[-1] in ("code-not-signed", "code-key-missing")
    second.join(second.token())
    lab.wait_over(sid)
    done = second.hpq(*words)
    assert (done.stdout, ids(done.stderr)) == (ran, []), "the edit is on the first machine"
    (second.folder / "train.py").write_text("print('bob has another')\n")
    done = second.hpq("try", f"{sid}/2")
    assert (done.stdout, ids(done.stderr)) == ("bob has another\n", ["code-edited"])


def test_leaving_returns_the_running_trial_to_the_queue(lab: Lab, second: Machine) -> None:
    worker = second.join(second.token())
    sid = lab.steered(1)
    lab.wait_for("began-1-1")
    second.ok("leave")
    assert lab.reader.sweeps.get(sid).counts.queued == 1
    assert worker.wait(DEADLINE_S) == 0


def test_a_worker_goes_on_after_the_password_was_rotated_and_the_old_token_is_refused(
    lab: Lab, second: Machine
) -> None:
    token, third = second.token(), Machine(lab, "eve")
    second.join(token)
    sid = lab.steered(2)
    lab.wait_for("began-1-1")
    parent, old_key = lab.parent(), (lab.home / "code.key").read_text()
    done = lab.hpq("redis-acl", "--rotate", "--new-code-key")
    assert done.returncode == 0 and "acl-unsaved" in ids(done.stderr), done
    new_key = (lab.home / "code.key").read_text().strip()
    assert new_key != old_key and oct((lab.home / "code.key").stat().st_mode).endswith("600")
    assert all(fingerprint(key.encode()) in done.stderr for key in (old_key, new_key))
    url = done.stdout.strip().removeprefix("export HPQ_REDIS_URL=")
    assert PASSWORD not in url and str(lab.server.socket) in url
    lab.redis.close()
    lab.redis = Redis.from_url(url)
    lab.reader = type(lab.reader)(lab.redis, lab.keys, 2_000)
    refused(lab.hpq("ls"), "redis-password-refused", exit=4)
    (third.folder / "token").write_text(token.read_text())
    (third.folder / "token").chmod(0o600)
    refused(third.hpq("join", "token"), "redis-password-refused", "hpq invite", exit=4)
    assert not (third.home / "join").exists()

    lab.env["HPQ_REDIS_URL"] = url
    lab.wait_until(lambda: "invalid username-password" in lab.log(), "a refusal")
    second.ok("join", "--no-worker", second.token("again"))
    lab.go()
    lab.wait_over(sid)  # with the key that its worker started with
    assert lab.parent() == parent
    after = lab.steered(3)
    assert lab.refusal(after).code == "code-not-signed"
    second.ok("leave")
    second.join(second.token("third"))
    lab.wait_over(after)


def test_a_sweep_that_waited_while_the_key_changed_runs_again_from_its_file(lab: Lab) -> None:
    """The key is a variable's; a worker with the new key leaves the sweep, and loses none of it."""
    lab.env["HPQ_CODE_KEY"] = "k" * 20
    before = lab.steered(2)
    url, key = lab.ok("redis-acl", "--rotate", "--new-code-key").splitlines()
    for name, line in (("HPQ_REDIS_URL", url), ("HPQ_CODE_KEY", key)):
        lab.env[name] = line.removeprefix(f"export {name}=")
    assert len(lab.env["HPQ_CODE_KEY"]) == 64 and not (lab.home / "code.key").exists()
    lab.redis.close()
    lab.redis = Redis.from_url(lab.env["HPQ_REDIS_URL"])
    lab.reader = type(lab.reader)(lab.redis, lab.keys, 12_000)
    lab.worker()
    assert lab.refusal(before).code == "code-not-signed"
    lab.go()
    again = lab.ok("enqueue", lab.code / "sweep-1.yaml", "--new", "--reuse").strip()
    lab.wait_over(again)
    assert lab.reader.sweeps.get(before).counts.queued == 2


def test_roles_rotate_with_their_files_and_a_worker_of_a_role_joins(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    """An administrator invites as the role `producer`, and ends the token later."""
    roles = tmp_path / "roles"
    roles.mkdir()
    for role in ("producer", "worker", "viewer", "autoscaler"):
        (roles / role).write_text(f"pass of {role}\n")
    lab = steered_anywhere(make_lab())
    for line in lab.ok("redis-acl", "--passwords", roles).splitlines():
        lab.redis.execute_command(*line.split())
    admin = dict(lab.env)
    lab.env["HPQ_REDIS_URL"] = lab.server.url.replace("unix://", "unix://hpq-producer@")
    lab.env["HPQ_REDIS_PASSWORD_FILE"] = str(roles / "producer")
    second = Machine(lab, "bob")
    token = second.token()
    second.join(token)
    sid = lab.steered(1)
    lab.go()
    lab.wait_over(sid)
    refused(lab.hpq("redis-acl", "--rotate"), "redis-forbidden", exit=4)
    done = run_hpq(["redis-acl", "--rotate", "--passwords", roles], lab.code, admin, DEADLINE_S)
    assert done.returncode == 0 and not done.stdout, done
    assert "pass of" not in "".join(path.read_text() for path in roles.iterdir())
    assert modes(roles) == {"0o600"}
    lab.ok("ls")
    refused(Machine(lab, "eve").hpq("join", token), "redis-password-refused", exit=4)


def test_a_worker_with_another_key_names_both_keys_and_join_mends_it(
    lab: Lab, second: Machine
) -> None:
    sid = lab.steered(1)
    theirs = second.env | {"HPQ_REDIS_URL": lab.env["HPQ_REDIS_URL"], "HPQ_CODE_KEY": "x" * 20}
    lab.worker(**{**theirs, "HPQ_HOME": str(second.home)})
    marks = [fingerprint(k.encode()) for k in ("x" * 20, (lab.home / "code.key").read_text())]
    lab.wait_until(lambda: "code-not-signed" in ids(lab.log()), "the refusal")
    (line,) = {one for one in lab.log().splitlines() if "code-not-signed" in one}
    assert all(mark in line for mark in marks) and "hpq invite" in line and "hpq join" in line
    second.join(second.token())
    lab.go()
    lab.wait_over(sid)


def test_a_token_of_a_server_that_does_not_answer_changes_nothing(
    lab: Lab, second: Machine
) -> None:
    token = second.token()
    lab.server.kill()
    refused(second.hpq("join", token), "redis-unreachable", "running", "firewall", exit=3)
    assert not list(second.home.iterdir())


def test_a_machine_joins_one_server_at_a_time(lab: Lab, make_lab: MakeLab, second: Machine) -> None:
    second.ok("join", "--no-worker", second.token())
    second.ok("join", "--no-worker", second.token("again"))
    third = Machine(lab, "eve")
    (third.folder / "token").write_text(second.ok("invite"))
    (third.folder / "token").chmod(0o600)
    third.ok("join", "--no-worker", "token")
    assert third.ok("ls", "--json") == lab.ok("ls", "--json")
    other = Machine(make_lab(), "ann")
    refused(second.hpq("join", other.token()), "connected-already", "hpq leave")
    for name, value in (("HPQ_REDIS_URL", lab.server.url), ("HPQ_CODE_KEY", "y" * 20)):
        done = second.hpq("join", second.folder / "token", **{name: value})
        refused(done, "connected-already", f"unset {name}")
    assert [path.name for path in second.home.iterdir() if path.name.startswith(".")] == []


def test_versions_that_differ_are_named_with_the_remedy(lab: Lab, second: Machine) -> None:
    """Another Python and another torch for programs, and no torch at all."""

    def python(version: str, torch: str) -> dict[str, str]:
        path = lab.folder / f"python-{version}"
        path.write_text(f"#!/bin/sh\necho {version}\necho {torch}\n")
        path.chmod(0o755)
        return {"HPQ_PYTHON": str(path)}

    token = second.folder / "token"
    lab.ok("invite", "--file", token, **python("3.11.4", "2.4.1+cu121"))
    same = second.hpq("join", "--no-worker", token, **python("3.11.9", "2.4.1+cpu"))
    assert same.returncode == 0 and not ids(same.stderr), same
    for version, torch, words in (
        ("3.12.0", "2.4.1", "python is 3.12"),
        ("3.11.1", "2.5.0", "torch is 2.5.0"),
        ("3.11.2", "", "torch is not installed"),
    ):
        done = second.hpq("join", "--no-worker", token, **python(version, torch))
        assert ids(done.stderr) == ["versions-differ"] and words in done.stderr, done


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_has_ended_does_not_hinder_leaving(
    lab: Lab, second: Machine, number: signal.Signals
) -> None:
    worker = second.join(second.token())
    lab.wait_until(lambda: lab.reader.workers.live(), "the worker")
    os.kill(worker.pid, number)
    worker.wait()
    assert "0 `hpq worker`" in second.hpq("leave").stderr
    assert not list((second.home / "connect").glob("worker-*"))
