"""The rules of the house that a reader relies on: who imports whom, how long things are, one home
for each idea."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hpq.domain.trial import TrialId
from hpq.store.keys import Keys
from hpq.store.scripts import source
from hpq_producer.audit.replay import NO_STEPS, STEPS
from tests.support.constants import ROOT

PACKAGES = ("hpq", "hpq_producer", "hpq_worker")
FOLDERS = ("hpq", "producer/hpq_producer", "worker/hpq_worker")
MODULES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
SCRIPTS = sorted(p.stem for p in (ROOT / "hpq" / "store" / "lua").glob("*.lua"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "hpq":
        parts = parts[1:]
    return ".".join(parts).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def top_levels(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def test_no_file_and_no_function_outgrows_a_reader() -> None:
    for path in MODULES:
        assert len(path.read_text("utf-8").splitlines()) <= 400, f"split {path} by idea"
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno
                assert lines < 70, f"{node.name} of {path} does not fit a screen"


def test_no_line_of_a_pages_script_is_longer_than_those_of_python() -> None:
    """`npx prettier --print-width 100 --single-quote` wraps all but strings and comments."""
    for path in ROOT.glob("producer/**/assets/*.js"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert len(line) <= 100, f"wrap {path}:{number}"


def test_every_module_says_what_it_is_for() -> None:
    assert [path for path in MODULES if not ast.get_docstring(tree_of(path))] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_scripts_head_names_the_words_that_it_answers(script: str) -> None:
    text = lua_text(script)
    head = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    assert "-- KEYS prefix" in head and "-- ARGV" in head and "-- Replies:" in head
    replies = head.partition("-- Replies:")[2]
    said = set(re.findall(r"return \{'(\w+)'", text)) | set(re.findall(r"reply = '(\w+)'", text))
    assert said and all(re.search(rf"\b{word}\b", replies) for word in said), said


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_uses_as_many_arguments_as_its_head_lists(script: str) -> None:
    text, listed = lua_of(script)
    text += lua_text("lib/reports") if "reports()" in text else ""
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", text)}
    used |= {int(n) for n in re.findall(r"unpack\(ARGV, (\d+)\)", text)}
    used |= {int(n) for n in re.findall(r"for i = (\d+), #ARGV", text)}
    flat = re.sub(r"\{[^}]*\}", "fields", listed)
    assert len(re.split(r",", flat)) >= len(used) - 2
    assert used == set(range(1, max(used) + 1)), "an argument is passed and not used"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_lists_and_reads_the_fields_that_python_sends(script: str) -> None:
    text, listed = lua_of(script)
    named = re.search(r"\{([^}]*)\}", listed)
    fields = {name.strip() for name in named[1].split(",")} if named else set()
    used = set(re.findall(r"\bargs\.(\w+)", text)) | (
        BATCH if "take_batch(s, t, args" in text else set()
    )
    assert used == fields == sent_to(script)


def lua_text(name: str) -> str:
    return (ROOT / "hpq" / "store" / "lua" / f"{name}.lua").read_text("utf-8")


BATCH = set(re.findall(r"\bbatch\.(\w+)", lua_text("lib/reports")))


def lua_of(script: str) -> tuple[str, str]:
    """The text of a script, and the list of arguments in its head without what is in brackets."""
    text = lua_text(script)
    listed = re.search(r"-- ARGV (.*?)-- Replies", text, re.DOTALL)
    assert listed is not None
    return text, re.sub(r"\([^)]*\)", "", listed[1].replace("--", " "))


def sent_to(script: str) -> set[str]:
    """The fields that `Scripts.run(script, …)` gets, those from a function's dict among them."""
    found: set[str] = set()
    for path in (ROOT / "hpq").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            is_run = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("scripts.run")
            if is_run and node.args and ast.unparse(node.args[0]) == repr(script):
                for keyword in node.keywords:
                    inner = ast.unparse(keyword.value).partition("(")[0].rpartition(".")[2]
                    found |= {keyword.arg} if keyword.arg else dict_of(inner)
    return found


def dict_of(function: str) -> set[str]:
    """The keys of the dict that a function of the codec returns."""
    for path in (ROOT / "hpq" / "store" / "wire").glob("*.py"):
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                last = node.body[-1]
                assert isinstance(last, ast.Return) and isinstance(last.value, ast.Dict)
                return {str(ast.literal_eval(key)) for key in last.value.keys if key}
    raise AssertionError(f"no function {function} in wire")


def test_python_and_lua_build_the_same_names() -> None:
    prelude = source("claim")
    keys, trial = Keys("hpq"), TrialId(sweep="s", number=7)
    assert "{P, ...}, ':'" in prelude
    assert keys.sweep("s", "waiting") == "hpq:s:s:waiting"
    assert (
        keys.trial(trial, "log") == "hpq:t:s/7:log"
        and keys.points(trial, "a b") == "hpq:t:s/7:p:a b"
    )
    parts = set(re.findall(r"sweep_key\(sid, '(\w+)'\)", "".join(map(source, SCRIPTS))))
    documented = set(
        re.findall(r"^P:s:S:(\w+)", (ROOT / "hpq/store/keys.py").read_text(), re.MULTILINE)
    )
    assert parts <= documented


def test_the_audit_knows_every_event_that_a_script_appends() -> None:
    folder = ROOT / "hpq" / "store" / "lua"
    text = "\n".join(path.read_text("utf-8") for path in folder.rglob("*.lua"))
    words = set(re.findall(r"\bevent(?:_ids)?\((?:sid|t|s\.SID), '(\w+)'", text))
    words |= set(re.findall(r"function verbs\.(\w+)", text))
    assert len(words) > 10 and words <= NO_STEPS | set(STEPS)


def test_no_key_is_spelled_outside_keys() -> None:
    spelled = re.compile(r"""["'](?:hpq|rq):(?:[a-z]+:|\{)""")
    homes = {"hpq/store/keys.py", "hpq/store/tickets.py"}
    for path in MODULES:
        if str(path.relative_to(ROOT)) not in homes:
            assert not spelled.search(path.read_text("utf-8")), path


NEVER = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib",
}  # fmt: skip
CALLS = {
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip


def test_no_shell_no_pickle_and_no_eval() -> None:
    for path in MODULES:
        # It runs a user's program in place of `python FILE`.
        runs_files = path == ROOT / "worker/hpq_worker/runner/preload_server.py"
        if (
            path != ROOT / "worker/hpq_worker/trainers/formats.py"
        ):  # its unpickler knows arrays only
            assert not top_levels(path) & NEVER, path
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                called, where = ast.unparse(node.func), f"{path}, line {node.lineno}"
                assert called not in CALLS | {"eval"} | (set() if runs_files else {"exec"}), where
                said = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert said.get("shell", "False") == "False", f"a shell, {where}"
                if called == "torch.load":
                    assert said.get("weights_only") == "True", where


def test_no_interpreter_that_hpq_starts_imports_from_the_current_directory() -> None:
    """Each has -P or -I; `printed_by` asks the Pythons of programs, which may not know -P."""
    starts = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            words = [ast.unparse(word) for word in node.elts] if isinstance(node, ast.List) else []
            is_hint = "'pip'" in words
            is_start = {"'-c'", "'-m'"} & set(words) and words[0] in ("python", "sys.executable")
            if is_start and not is_hint:
                starts.append(name_of(path))
                assert words[1] in ("'-P'", "'-I'") or name_of(path) == "hpq.code.command", words
    assert len(starts) >= 10, starts


def test_one_module_starts_git() -> None:
    starts = [name_of(path) for path in MODULES if '["git",' in path.read_text("utf-8")]
    assert starts == ["hpq.code.git"]
