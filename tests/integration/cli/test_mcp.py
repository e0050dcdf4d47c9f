"""`hpq mcp` with a real client of the SDK, which starts it, over a real Redis."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from tests.conftest import MakeSweep
from tests.support.constants import ROOT
from tests.support.desk import run_here
from tests.support.mcp_agent import Agent, connected
from tests.support.server import Server, find_server
from tests.support.store_calls import beat, end, fail, report, take

pytest.importorskip("mcp")
READING = {"list", "plan", "status", "results", "best", "show", "logs"}
WRITING = {"enqueue", "add", "stop"}
SWEEP = """\
program: train.py
method: grid
metric: {name: acc, goal: maximize}
parameters:
  x: {values: [1, 2, 3]}
"""
LONG = "ValueError: " + 'é\x1b[31m"\\' * 3_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that holds the root, and other directories beside it."""
    found = tmp_path_factory.mktemp("mcp").resolve()
    root = found / "root"
    root.mkdir()
    (root / "train.py").write_text("print('acc=1')\n")
    (root / "sweep.yaml").write_text(SWEEP)
    return found


@pytest.fixture(scope="module")
def env(redis_url: str, place: Path) -> dict[str, str]:
    home = str(place / "home")
    return {"HPQ_REDIS_URL": redis_url, "HPQ_USER": "me", "HPQ_HOME": home}


@pytest.fixture(scope="module")
def reading(place: Path, env: dict[str, str]) -> Iterator[Agent]:
    with connected(place / "root", env) as agent:
        yield agent


@pytest.fixture(scope="module")
def writing(place: Path, env: dict[str, str]) -> Iterator[Agent]:
    with connected(place / "root", env, "--allow-writes") as agent:
        yield agent


def test_an_agent_plans_enqueues_follows_and_reads_a_sweep(
    writing: Agent, redis: Redis, store: TrialStore, who: WorkerPresence
) -> None:
    assert writing.tools() == READING | WRITING
    plan = writing.gets("plan", file="sweep.yaml")
    assert (plan["trials"], plan["sets"][0], plan["files"]) == (3, {"x": 1}, ["train.py"])
    assert writing.gets("plan", file="sweep.yaml", count=2)["trials"] == 2
    done = writing.gets("enqueue", file="sweep.yaml")
    sid = done["sweep"]
    assert done["state"] == "waiting"  # the word of `list`
    assert done["new"] and not writing.gets("enqueue", file="sweep.yaml")["new"]
    (listed,) = writing.gets("list")["sweeps"]
    assert (listed["sweep"], listed["state"]) == (sid, "waiting")
    waiting = writing.gets("status", sweep=sid)
    assert (waiting["queued"], waiting["needs_you"][0]["code"]) == (3, "no-worker")
    assert "error" not in waiting and waiting["events"] == []
    assert writing.refusal("best", sweep=sid) == "no-result"
    for value in (0.5, 0.9):
        got = take(store, who)
        report(store, who, got, f"at {value}\n".encode(), acc=[value])
        end(store, got, value)
    since = writing.gets("status", sweep=sid, since=waiting["cursor"])
    assert len(since["events"]) == 4 and since["all"]
    assert writing.gets("status", sweep=sid, since=since["cursor"])["events"] == []
    best = writing.gets("best", sweep=sid, top=2)
    assert [one["trial"] for one in best["trials"]] == [2, 1] and "leads" in best["verdict"]
    (one,) = writing.gets("results", sweep=sid, where="acc > 0.7")["trials"]
    assert (one["trial"], one["param"], one["objective"]) == (2, {"x": 2}, 0.9)
    assert writing.gets("logs", what=f"{sid}/2")["text"] == "at 0.9\n"
    assert writing.gets("show", what=f"{sid}/2")["history"] == {"acc": [[1, 0.9]]}
    assert writing.gets("show", what=sid)["spec"]["parameters"] == {"x": {"values": [1, 2, 3]}}
    assert "stopped" not in since
    assert sid in writing.gets("stop", sweep=sid)["done"]
    ended = writing.gets("status", sweep=sid)
    assert (ended["state"], ended["stopped"], ended["cancelled"]) == ("finished", True, 1)
    assert writing.refusal("add", sweep=sid, sets=[{"x": 1}], again=True) == "sweep-over"


def test_a_server_changes_nothing_without_allow_writes(
    reading: Agent, redis: Redis, reader: StoreReader, place: Path, env: dict[str, str]
) -> None:
    sid = run_here(["enqueue", "sweep.yaml"], place / "root", env).stdout.strip()
    assert reading.tools() == READING | WRITING
    assert reading.gets("plan", file="sweep.yaml")["trials"] == 3
    assert reading.refusal("enqueue", file="sweep.yaml", count=1) == "forbidden"
    assert reading.refusal("stop", sweep=sid) == "forbidden"
    assert reading.refusal("add", sweep=sid, count=1) == "forbidden"
    assert reader.sweeps.ids() == [sid] and reader.sweeps.get(sid).counts.queued == 3


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    """A directory below the root, for one test: what it holds is part of each snapshot."""
    found = place / "root" / "case"
    found.mkdir()
    yield found
    shutil.rmtree(found)


def outside(name: str, place: Path, folder: Path) -> str:
    """Write a sweep that would run what is not below the root; return its path."""
    other = place / "other"
    other.mkdir(exist_ok=True)
    (other / "train.py").write_text("print('acc=1')\n")
    (other / "lib").mkdir(exist_ok=True)
    (other / "lib" / "__init__.py").write_text("")
    (other / "sweep.yaml").write_text(SWEEP)
    file = folder / "sweep.yaml"
    (folder / "t.py").write_text("print('acc=1')\n")
    text = SWEEP.replace("train.py", "t.py")

    def command(*words: str) -> str:
        return text + f"command: {json.dumps(words)}\n"

    texts = {
        "program-absolute": SWEEP.replace("train.py", str(other / "train.py")),
        "program-dots": SWEEP.replace("train.py", "../../other/train.py"),
        "program-link": SWEEP.replace("train.py", "linked.py"),
        "code": SWEEP + f"code: {other}\n",
        "code-dots": SWEEP + "code: ../../other\n",
        "code-link": SWEEP + "code: linked\n",
        "import-link": text,
        "interpreter": command(str(other / "train.py"), "${program}", "${args}"),
        "shell": command("bash", "-c", f"python {other}/train.py"),
        "option": command("python", "-c", "import os", "${program}"),
        "module": command("python", "-m", "lib", "${args}"),
        "script": command("python", str(other / "train.py"), "${args}"),
        "script-dots": command("python", "../../other/train.py", "${args}"),
        "macro": command("python", "${x}.py", "${args}"),
        "variable": command("python", "${envvar:HOME}/t.py", "${args}"),
        "launcher": command("env", "PYTHONPATH=/tmp", "python", "${program}"),
        "other-launcher": command("timeout", "9", "python", "${program}"),
        "console": SWEEP.replace("train.py", "cat"),
        "trainer-installed": SWEEP.replace("program: train.py", "trainer: json:loads"),
        "trainer-link": SWEEP.replace("program: train.py", "trainer: linked:fit"),
        "packages-link": text,
        "binary-link": text,
        "deep-link": text,
    }
    file.write_text(texts[name])
    if name.endswith("link"):
        (folder / "linked").symlink_to(other / "lib" if name == "import-link" else other)
        (folder / "linked.py").symlink_to(other / "train.py")
    if name in ("packages-link", "binary-link", "deep-link"):  # nothing else leads out
        (folder / "linked.py").unlink()
        (folder / "linked").unlink()
        below = folder / "deep" if name == "deep-link" else folder
        below.mkdir(exist_ok=True)
        (other / "space" / "pkg").mkdir(parents=True, exist_ok=True)
        (other / "space" / "pkg" / "__init__.py").write_text("")
        (other / "fast.so").write_text("")
        binary = name == "binary-link"
        (below / ("fast.so" if binary else "space")).symlink_to(
            other / ("fast.so" if binary else "space")
        )
    return str(file)


OUTSIDE = """
program-absolute program-dots program-link code code-dots code-link import-link interpreter shell
option module script script-dots macro variable launcher other-launcher console trainer-installed
trainer-link packages-link binary-link deep-link
""".split()


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_that_runs_what_is_outside_the_root_is_refused(
    writing: Agent, reader: StoreReader, redis: Redis, place: Path, folder: Path, name: str
) -> None:
    file = outside(name, place, folder)
    for tool in ("plan", "enqueue"):
        assert writing.refusal(tool, file=file) in ("outside-root", "code-invalid"), tool
    assert reader.sweeps.ids() == []


def test_code_of_a_checkout_around_the_root_is_refused(
    place: Path, env: dict[str, str], redis: Redis, reader: StoreReader
) -> None:
    root = place / "checkout" / "inner"
    root.mkdir(parents=True)
    (root.parent / ".git").mkdir()
    for name, text in (("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n\tbare = false\n")):
        (root.parent / ".git" / name).write_text(text)
    for name in ("objects", "refs"):
        (root.parent / ".git" / name).mkdir()
    (root.parent / "helper.py").write_text("")
    (root / "train.py").write_text("import helper\n")
    (root / "sweep.yaml").write_text(SWEEP)
    with connected(root, env, "--allow-writes") as agent:
        assert agent.refusal("enqueue", file="sweep.yaml") == "outside-root"
    with connected(root.parent, env, "--allow-writes") as agent:
        assert agent.gets("enqueue", file="inner/sweep.yaml")["new"]
    assert len(reader.sweeps.ids()) == 1


def test_only_sweep_files_below_the_root_are_read(
    writing: Agent, place: Path, folder: Path
) -> None:
    (place / "other.yaml").write_text(SWEEP)
    (folder / "link.yaml").symlink_to(place / "other.yaml")
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    (folder / "away").symlink_to(place)
    (folder / "key.yaml").symlink_to(place / "home" / "code.key")
    (folder / "folder.yaml").mkdir()
    cases = {
        "outside-root": (
            place / "other.yaml", "../other.yaml", "case/link.yaml", "case/away/other.yaml",
            "case/key.yaml",
            "/etc/passwd", "/dev/stdin", "../root-2/sweep.yaml",
        ),
        "file-not-found": (
            "none.yaml", "train.py", "case/folder.yaml", "", "--help", "x" * 5_000, "a\0.yaml", "~",
        ),
    }  # fmt: skip
    for code, files in cases.items():
        for file in files:
            assert writing.refusal("plan", file=str(file)) == code, file
            assert writing.refusal("enqueue", file=str(file)) == code, file
    assert writing.refusal("plan", file="case/loop.yaml") in cases


@pytest.mark.parametrize(
    "command",
    [
        ["python", "${program}", "${args}"],
        ["/usr/bin/env", "python3", "t.py", "--data=/data/images", "${args_no_hyphens}"],
        ["${env}", "${interpreter}", "t.py"],
    ],
)
def test_a_python_file_below_the_root_may_have_any_arguments(
    reading: Agent, folder: Path, command: list[str]
) -> None:
    (folder / "t.py").write_text("print('acc=1')\n")
    text = SWEEP.replace("train.py", "t.py") + f"command: {json.dumps(command)}\n"
    (folder / "any.yaml").write_text(text)
    assert reading.gets("plan", file="case/any.yaml")["trials"] == 3


def test_answers_of_a_sweep_of_3000_trials_with_long_errors_fit_and_name_the_rest(
    reading: Agent, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep = sweep_of(3_000)
    for number in range(51):
        got = take(store, who)
        report(store, who, got, f"{LONG}\n".encode() * 20, acc=[*range(900), number])
        end(store, got, number)
        fail(store, take(store, who), LONG)  # several in turn would hold the sweep
    sid = sweep.id
    seen: list[int] = []
    start: int | None = 0
    while start is not None:
        page = reading.gets("results", sweep=sid, start=start)
        seen += [one["trial"] for one in page["trials"]]
        start = page["next"]
    assert seen == [*range(1, 103)] and page["total"] == 3_000
    cursor, events, is_whole = "0-1", list[str](), False
    while not is_whole:
        state = reading.gets("status", sweep=sid, since=cursor)
        cursor, is_whole = state["cursor"], state["all"]
        events += state["events"]
    assert len(events) == 205 and len(set(events)) == 205
    ranked = reading.gets("best", sweep=sid, top=50)
    rest = reading.gets("best", sweep=sid, top=5, start=ranked["next"])
    best = [one["trial"] for one in (*ranked["trials"], *rest["trials"])]
    assert best == [*range(101, 101 - 2 * len(best), -2)] and rest["trials"] and ranked["trials"]
    assert "cut" in reading.gets("show", what=f"{sid}/1")
    text, start = "", 0
    while start is not None:
        part = reading.gets("show", what=f"{sid}/1", name="history.acc", start=start)
        text, start = text + part["text"], part["next"]
    assert len(text) == part["characters"] and len(json.loads(text)) > 400
    error = reading.gets("show", what=f"{sid}/2", name="failure.message")
    assert error["text"].startswith("ValueError") and error["characters"] >= len(error["text"])
    assert reading.refusal("show", what=f"{sid}/2", name="failure.x") == "column-unknown"
    tail = reading.gets("logs", what=f"{sid}/1")
    assert tail["next"] is None and reading.gets("logs", what=f"{sid}/1", start=0)["start"] == 0
    assert reading.refusal("results", sweep=sid, where="x > ") == "expression-invalid"
    where = "z" * 5_000 + " > 1"
    assert reading.refusal("results", sweep=sid, where=where) == "expression-invalid"
    assert reading.refusal("results", sweep=sid, where="z > 1") == "filter-name-unknown"


def test_an_answer_with_parameters_that_no_key_signed_warns(
    reading: Agent,
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    place: Path,
    env: dict[str, str],
) -> None:
    sid = sweep_of(1).id
    end(store, take(store, who), 0.5)
    run_here(["enqueue", "sweep.yaml"], place / "root", env)  # makes the key of this home
    for tool, name in (("results", "sweep"), ("best", "sweep"), ("show", "what")):
        what = f"{sid}/1" if tool == "show" else sid
        found = reading.gets(tool, **{name: what})
        assert found["warning"]["code"] == "parameters-unverified", tool


def test_an_agent_adds_trials_inside_the_space_of_a_sweep_only(
    writing: Agent, redis: Redis, reader: StoreReader, place: Path, env: dict[str, str]
) -> None:
    text = SWEEP.replace("grid", "random") + "  lr: {min: 0.1, max: 0.5}\nrun_cap: 2\n"
    (place / "root" / "drawn.yaml").write_text(text)
    sid = run_here(["enqueue", "drawn.yaml"], place / "root", env).stdout.strip()
    (place / "root" / "bayes.yaml").write_text(text.replace("random", "bayes"))
    later = writing.gets("enqueue", file="bayes.yaml")
    assert (later["trials"], later["planned"]) == (0, 2)
    inside = {"x": 2, "lr": 0.25}
    done = writing.gets("add", sweep=sid, sets=[inside])
    assert (len(done["added"]), done["outside"], done["exists"]) == (1, [], [])
    assert done["state"] == "waiting"
    again = writing.gets("add", sweep=sid, sets=[inside])
    assert again["added"] == [] and again["exists"][0]["params"] == inside
    copy = writing.gets("add", sweep=sid, sets=[inside], again=True)
    assert copy["added"] == [done["added"][0] + 1]
    many = [{"x": 1, "lr": 0.1 + n / 10_000} for n in range(1, 3_001)]
    assert writing.gets("add", sweep=sid, sets=many)["added"][0] == done["added"][0] + 2
    total = reader.sweeps.get(sid).counts.total
    for wrong in ({"x": 9, "lr": 0.25}, {"x": 2, "lr": 0.9}, {"x": "/bin/sh", "lr": 0.2}, {"x": 2}):
        assert writing.refusal("add", sweep=sid, sets=[wrong]), wrong
    assert writing.refusal("add", sweep=sid, sets=[{**inside, "command": "sh"}])
    assert writing.refusal("add", sweep=sid, sets=[inside], count=1) == "usage"
    assert writing.refusal("add", sweep=sid) == "usage"
    assert writing.refusal("add", sweep=sid, sets=[{**inside, "x": 9}]) == "outside-space"
    assert writing.refusal("add", sweep=sid, sets=[inside], start_from=99_999) == "trial-not-found"
    assert writing.refusal("add", sweep=sid, count=1, start_from=1) == "usage"
    assert reader.sweeps.get(sid).counts.total == total
    (place / "root" / "list.yaml").write_text("- hyperparam_set: {x: 1}\n")
    words = ["enqueue", "list.yaml", "--set", "program=train.py"]
    listed = run_here(words, place / "root", env).stdout.strip()
    assert writing.refusal("add", sweep=listed, sets=[{"x": 2}]) == "forbidden"


def test_warnings_of_the_command_are_in_the_answer(place: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, find_server())
    server.start()
    with Redis.from_url(server.url) as redis:
        redis.config_set("maxmemory", "1gb")
        redis.config_set("maxmemory-policy", "allkeys-lru")
    env = {"HPQ_REDIS_URL": server.url, "HPQ_USER": "me", "HPQ_HOME": str(tmp_path / "home")}
    with connected(place / "root", env, "--allow-writes") as agent:
        done = agent.gets("enqueue", file="sweep.yaml", count=2)
        assert "noeviction" in str(done["warnings"])
        added = agent.gets("add", sweep=done["sweep"], count=5)
        assert len(added["added"]) == 1 and "1 further" in str(added["notes"])
        assert "noeviction" in str(added["warnings"])
    server.kill()


def test_an_alert_of_a_script_is_a_notice_of_its_trial(
    reading: Agent,
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    place: Path,
    env: dict[str, str],
) -> None:
    sid = sweep_of(1).id
    alerts = ["WARN slow: \x1b[31mdisk"]
    info = json.dumps({"alerts": [*alerts, 7]})
    beat(store, who, take(store, who), 1, run_info=info)
    assert reading.gets("results", sweep=sid)["trials"][0]["alerts"] == alerts
    assert reading.gets("show", what=f"{sid}/1")["alerts"] == alerts
    shown = run_here(["show", f"{sid}/1"], place, env).stdout
    assert "WARN slow: " in shown and "\x1b" not in shown


def test_a_call_for_a_sweep_that_is_none_has_the_id_of_the_error(reading: Agent) -> None:
    for tool, name in (("status", "sweep"), ("results", "sweep"), ("best", "sweep"),
                       ("show", "what"), ("logs", "what")):  # fmt: skip
        assert reading.refusal(tool, **{name: "none-12345"}) == "sweep-not-found", tool
        assert reading.refusal(tool, **{name: ""}) == "usage", tool
    for wrong in ({"since": "x" * 9_000}, {"wait_s": 1e9}, {"wait_s": "nan"}):
        assert reading.refusal("status", sweep="a-1", **wrong) == "usage", wrong
    sets = [{"x": 1}] * 50 + ["x" * 999] * 200
    assert reading.refusal("add", sweep="a-1", sets=sets) == "usage"
    assert reading.refusal("none" * 2_000) == "usage"


def test_an_argument_that_a_tool_lacks_is_an_error(
    writing: Agent, redis: Redis, reader: StoreReader
) -> None:
    sid = writing.gets("enqueue", file="sweep.yaml")["sweep"]
    wrong: dict[str, dict[str, object]] = {
        "add": {"sweep": sid, "sets": [{"x": 2}], "from": 1, "again": True},
        "enqueue": {"file": "sweep.yaml", "count": 1, "set": {"name": "x"}},
        "results": {"sweep": sid, "state": "failed"},
        "list": {"state": "running"},
        "stop": {"sweep": sid, "now": True},
    }
    for tool, arguments in wrong.items():
        assert writing.refusal(tool, **arguments) == "usage", tool
    assert reader.sweeps.ids() == [sid] and reader.sweeps.get(sid).counts.queued == 3
    assert set(writing.closed().values()) == {False}


def test_a_server_outlives_its_redis(tmp_path: Path) -> None:
    server = Server(tmp_path, find_server())
    server.start()
    env = {"HPQ_REDIS_URL": server.url, "HPQ_USER": "me", "HPQ_HOME": str(tmp_path / "home")}
    with connected(tmp_path, env) as agent:
        assert agent.gets("list")["sweeps"] == []
        server.kill()
        assert agent.refusal("list") == "redis-unreachable"
        server.start()
        assert agent.gets("list")["sweeps"] == []
    server.kill()


def test_the_skill_is_in_the_package(tmp_path: Path) -> None:
    done = run_here(["mcp", "--skill"], tmp_path)
    skill = ROOT / "producer" / "hpq_producer" / "commands" / "mcp" / "SKILL.md"
    assert (done.returncode, done.stdout) == (0, skill.read_text())


@pytest.mark.parametrize("root", ["/", "none", "file"])
def test_a_root_must_be_a_directory_below_the_first_one(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("")
    assert run_here(["mcp", root], tmp_path).returncode == 2
