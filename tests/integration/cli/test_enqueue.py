"""Enqueue on a real server: all or nothing, twice is once, edited code is another sweep."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from hpq.access.session import Session
from hpq.code.signing import is_signed, key_of
from hpq.domain.attempt import Nothing
from hpq.domain.trial import Claim
from hpq.settings import read
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq_producer.commands.make_sweep.enqueue import print_enqueued
from hpq_producer.enqueue import code_discovery
from hpq_producer.enqueue.enqueue_sweep import Enqueued, enqueue_sweep
from hpq_producer.enqueue.prepare import prepare
from hpq_producer.sweepfile.load import load
from tests.support.ids import raises

SWEEP = "program: train.py\nmethod: grid\nparameters:\n  a: {values: [3, 1, 2]}\n  b: {value: x}\n"

Take = Callable[[], Claim | Nothing]


@pytest.fixture
def session(
    redis: Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Session:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    settings = read({"HPQ_REDIS_URL": redis_url, "HPQ_HOME": str(tmp_path / "home"), "USER": "me"})
    keys = Keys("hpq")
    return Session(
        settings=settings,
        url=redis_url,
        redis=redis,
        keys=keys,
        reader=StoreReader(redis, keys, 30_000),
        context=StoreContext.open(redis, keys),
    )


def put(session: Session, **more: object) -> Enqueued:
    file = Path("sweep.yaml")
    return enqueue_sweep(session, prepare(load(file), file), **more)  # type: ignore[arg-type]


def test_the_same_file_twice_is_one_sweep(session: Session) -> None:
    first, second = put(session), put(session)
    assert first.is_new and not second.is_new and first.sid == second.sid
    assert put(session, allow_duplicate=True).sid != first.sid


def test_code_that_workers_would_refuse_is_refused_before_anything_is_queued(
    session: Session,
) -> None:
    prepared = prepare(load(Path("sweep.yaml")), Path("sweep.yaml"))
    grown = {**(prepared.code.files or {}), "train.py": (bytes(11 * 2**20), 0o644)}
    code = replace(prepared.code, files=grown)
    with raises("code-too-large"):
        enqueue_sweep(session, replace(prepared, code=code))
    assert not session.redis.keys("*")


def test_trials_keep_the_order_of_the_file_and_their_parameters(session: Session) -> None:
    trials = list(session.reader.trials.all(put(session).sid))
    assert [dict(t.params) for t in trials] == [{"a": a, "b": "x"} for a in (3, 1, 2)]
    assert [list(t.params) for t in trials] == [["a", "b"]] * 3


def test_what_was_enqueued_is_told_also_when_workers_have_it_already(
    session: Session, take: Take, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("sweep.yaml")
    prepared = prepare(load(file), file)
    done = enqueue_sweep(session, prepared)
    for _ in range(3):
        assert isinstance(take(), Claim)
    print_enqueued(session, done, session.reader.sweeps.get(done.sid), prepared)
    assert f"{done.sid}: 3 trials queued" in capsys.readouterr().err


def test_edited_code_is_another_sweep(session: Session, tmp_path: Path) -> None:
    first = put(session)
    (tmp_path / "train.py").write_text("print('loss=2')\n")
    assert put(session).sid != first.sid


def test_a_copy_of_a_project_is_a_sweep_of_its_own(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(session)
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    (tmp_path / "train.py").unlink()
    monkeypatch.chdir(copy)
    second = put(session)
    assert second.is_new and second.sid != first.sid
    assert session.reader.sweeps.get(second.sid).launch.code_dir == str(copy)
    assert put(session).sid == second.sid


def test_an_output_beside_the_program_is_not_its_code(session: Session, tmp_path: Path) -> None:
    first = put(session)
    (tmp_path / "results.json").write_text("{}")
    assert put(session).sid == first.sid


def test_a_comment_in_the_file_is_the_same_sweep(session: Session, tmp_path: Path) -> None:
    first = put(session)
    (tmp_path / "sweep.yaml").write_text("# a comment\n" + SWEEP)
    assert put(session).sid == first.sid


def test_the_launch_record_is_signed_for_this_sweep_alone(session: Session) -> None:
    sweep = session.reader.sweeps.get(put(session).sid)
    key = key_of(session.settings, make=False)
    assert key is not None
    assert is_signed(key, "hpq", sweep)
    assert not is_signed(key, "hpq", replace(sweep, id="another-00000"))
    assert not is_signed(key, "other", sweep)
    assert not is_signed(b"other", "hpq", sweep)


def test_a_sweep_without_an_end_is_open_ended(session: Session, tmp_path: Path) -> None:
    text = "program: train.py\nmethod: random\nparameters:\n  a: {min: 0.0, max: 1.0}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    sweep = session.reader.sweeps.get(put(session).sid)
    assert (sweep.state, sweep.counts.total, sweep.counts.is_open_ended) == ("running", 0, True)
    assert put(session).sid == sweep.id  # the same file again


def test_a_program_that_is_nowhere_names_the_places(session: Session, tmp_path: Path) -> None:
    (tmp_path / "train.py").unlink()
    with raises("code-invalid", "sweep.yaml:1:1: program: 'train.py'", "--code"):
        put(session)


def test_a_misspelled_program_is_told_with_its_place_and_the_name_that_was_meant(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("train.py", "trian.py"))
    with raises("code-invalid", "sweep.yaml:1:1: ", "'train.py'"):
        put(session)
    (tmp_path / "sweep.yaml").write_text(
        "# x\n" + SWEEP.replace("program: train.py", "trainer: no_such:f")
    )
    with raises("code-invalid", "sweep.yaml:2:1: trainer: 'no_such:f'"):
        put(session)


@pytest.mark.parametrize(
    ("text", "flags", "position"),
    [
        (SWEEP, {"overrides": {"program": "gone.py"}}, "--set program=gone.py: program: 'gone.py'"),
        (
            "- hyperparam_set: {lr: 0.1}\n",
            {"overrides": {"trainer": "no_such:f"}},
            "--set trainer=no_such:f: trainer: 'no_such:f'",
        ),
    ],
)
def test_code_that_an_option_names_and_that_is_nowhere_is_told_with_the_option(
    session: Session, tmp_path: Path, text: str, flags: dict[str, Any], position: str
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with raises("code-invalid", position):
        prepare(load(file, **flags), file)


def test_python_m_runs_a_module_or_package_of_the_code(tmp_path: Path) -> None:
    for path in (made := [tmp_path / "src" / "train.py", tmp_path / "pkg" / "__main__.py"]):
        path.parent.mkdir()
        path.touch()
    head = "command: ['${env}', '${interpreter}', -m, '${program}', '${args}']\n"
    file = tmp_path / "sweep.yaml"
    for program in ("src.train", "pkg"):
        file.write_text(head + SWEEP.replace("train.py", program))
        files = prepare(load(file), file).code.files or {}
        assert {str(path.relative_to(tmp_path)) for path in made} <= files.keys()
    for text, said in (
        (head + SWEEP.replace("train.py", "src.trian"), "src.trian"),
        (head + SWEEP.replace("train.py", "src/train.py"), "write program: src.train"),
        (SWEEP.replace("train.py", "pkg"), "pkg"),
        (SWEEP.replace("train.py", "'python3 '"), "write program: train.py"),
    ):
        file.write_text(text)
        with raises("code-invalid", "program: ", said):
            prepare(load(file), file)


@pytest.mark.parametrize(
    ("program", "right"),
    [
        ("-m src.train", "program: src.train and command: "),
        ("python3 -m src.train --a", "program: src.train and command: "),
        ("src/train.py --a", "program: src/train.py and command: "),
        ("python src/train.py", "program: src/train.py"),
        ("src/train.py ", "program: src/train.py"),
        ("-u src/train.py", "program: src/train.py and command: "),
        ("python -u -O src/train.py --a", "program: src/train.py and command: "),
        ("python -u -m src.train", "program: src.train and command: "),
        ("python -W ignore src/train.py", "command: "),
        ("bash run.sh -x", "command: "),
    ],
)
def test_a_command_line_in_place_of_the_program_is_told_what_to_write(
    tmp_path: Path, program: str, right: str
) -> None:
    for path in (tmp_path / "src" / "train.py", tmp_path / "run.sh"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("train.py", f"'{program}'"))
    with raises("code-invalid", f"program: no file {program!r}", f"write {right}") as caught:
        prepare(load(file), file)
    # What the message says to write is a sweep file that is right.
    lines = str(caught.value).rpartition("write ")[2].replace(" and command:", "\ncommand:")
    file.write_text(SWEEP.replace("program: train.py", lines))
    assert prepare(load(file), file).code.files


def test_a_program_that_the_command_does_not_start_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    file = tmp_path / "sweep.yaml"
    file.write_text("command: [python, src/main.py, '${args}']\n" + SWEEP)
    found = prepare(load(file), file).code
    assert found.launch.program == "" and "src/main.py" in (found.files or {})


def test_a_program_is_found_beside_the_file_where_it_is_not_in_the_working_directory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    file = tmp_path / "sweep.yaml"
    assert code_discovery.find_code(load(file), file, elsewhere).launch.code_dir == str(
        tmp_path.resolve()
    )


def test_a_failed_enqueue_leaves_no_rows(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(count: int) -> None:
        raise KeyboardInterrupt

    before = set(session.redis.keys("*"))
    with pytest.raises(KeyboardInterrupt):
        put(session, progress=broken)
    assert {k for k in session.redis.keys("*") if b":s:" in k} == {k for k in before if b":s:" in k}
