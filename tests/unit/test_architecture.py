"""Rules that ruff and the layers cannot hold: heads of scripts, single homes, interpreters."""

from __future__ import annotations

import ast
import re

from tests.unit.test_layers import MODULES, nodes

STORE = MODULES["hpq.store"].parent
SCRIPTS = {path.stem: path.read_text("utf-8") for path in (STORE / "lua").glob("*.lua")}
BATCH = set(re.findall(r"\bbatch\.(\w+)", (STORE / "lua/lib/reports.lua").read_text("utf-8")))


def sent() -> dict[str, set[str]]:
    """Return the fields of `scripts.run` by script; a function's dict gives those of `**`."""
    dicts = {
        node.name: {ast.literal_eval(key) for key in node.body[-1].value.keys if key}
        for path in STORE.glob("wire/*.py")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef)
        and isinstance(node.body[-1], ast.Return)
        and isinstance(node.body[-1].value, ast.Dict)
    }
    found: dict[str, set[str]] = {name: set() for name in SCRIPTS}
    for node in (node for path in STORE.glob("*.py") for node in nodes(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("scripts.run"):
            fields = found[ast.literal_eval(node.args[0])]
            for keyword in node.keywords:
                made = ast.unparse(keyword.value).partition("(")[0].rpartition(".")[2]
                fields |= {keyword.arg} if keyword.arg else dicts[made]
    return found


def test_a_scripts_head_lists_the_fields_that_it_is_sent_and_the_words_that_it_answers() -> None:
    fields = sent()
    for name, text in SCRIPTS.items():
        head = re.match(r"(--.*\n)*", text)[0]
        argv, replies = head.partition("-- ARGV")[2].replace("\n--", "").split("Replies: ")
        inside = re.search(r"\{(.*)\}", re.sub(r"\(.*?\)", "", argv))
        listed = set(re.findall(r"\w+", inside[1])) if inside else set()
        read = set(re.findall(r"\bargs\.(\w+)", text))
        if "take_batch(s, t, args" in text:
            read |= BATCH
        assert read == listed == fields[name], name
        words = set(re.findall(r"(?:return \{|reply = )'(\w+)'", text))
        assert words and words <= set(re.findall(r"\w+", replies)), name


def test_keys_and_git_have_one_home_each() -> None:
    key = re.compile(r"""["'](?:hpq|rq):(?:[a-z]+:|\{)""")
    texts = {name: path.read_text("utf-8") for name, path in MODULES.items()}
    spelled = {name for name, text in texts.items() if key.search(text)}
    assert spelled == {"hpq.store.keys", "hpq.store.tickets"}
    assert [name for name, text in texts.items() if '["git",' in text] == ["hpq.code.git"]


def test_no_interpreter_that_hpq_starts_imports_from_the_current_directory() -> None:
    """Each has -P or -I; `printed_by` asks the Pythons of programs, which may not know -P."""
    starts = []
    for name, path in MODULES.items():
        for node in nodes(path):
            words = [ast.unparse(word) for word in node.elts] if isinstance(node, ast.List) else []
            is_start = {"'-c'", "'-m'"} & {*words} and words[0] in ("python", "sys.executable")
            if is_start and "'pip'" not in words and name != "hpq.code.command":
                starts.append(words)
    assert len(starts) >= 8 and all(one[1] in ("'-P'", "'-I'") for one in starts), starts
