"""The strict YAML reader: what a text means, where things stand, and what is refused."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import yaml

from hpq.errors import SweepFileError
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import decode, read
from tests.support.golden import Golden
from tests.support.ids import raises
from tests.support.sweep_files import check


def data(text: str) -> object:
    return yaml_reader.parse(text, "s.yaml").data


def refused(raw: bytes) -> SweepFileError:
    with pytest.raises(SweepFileError) as caught:
        yaml_reader.parse(decode(raw, "s.yaml"), "s.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("+1.", 1.0),
        ("010", 8),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("9223372036854775808", 2**63),
        ("10_000_000", 10_000_000),
        ("1_000.5", 1000.5),
        ("012", 10),
        ("089", 89),
        ("0b11", 3),
        ("1:30", 90),
        ("1:30.5", 90.5),
        ("1_000e", "1_000e"),
        ("1:99", "1:99"),
        ("2026-01-01", "2026-01-01"),
        ("1e", "1e"),
        (".", "."),
        ("~", None),
        ("", None),
        ("null", None),
        ("on", True),
        ("Off", False),
        ("YES", True),
        ("no", False),
        ("y", "y"),
        ("'off'", "off"),
        ('"1e-3"', "1e-3"),
        ("!!float 1e-5", 1e-5),
        ("!!float 3", 3.0),
        (".inf", math.inf),
        ("[1, a]", [1, "a"]),
    ],
)
def test_a_word_means_what_yaml_1_2_says_but_for_old_booleans_and_numbers(
    text: str, value: object
) -> None:
    """B3: 1e-3, 010, 1:30, dates, on and off."""
    got = data(f"a: {text}\n")
    assert got == {"a": value}
    assert isinstance(got, dict) and type(got["a"]) is type(value)


def test_nan_is_read_and_left_to_the_schema() -> None:
    got = data("a: .nan")
    assert isinstance(got, dict) and math.isnan(got["a"])


def test_a_key_is_the_text_that_stands_there() -> None:
    assert data("on: 1\n010: 2\n") == {"on": 1, "010": 2}


def test_each_part_stands_where_its_key_or_item_begins() -> None:
    text = "parameters:\n  lr: {min: 1,\n    max: 2}\n  b: [x, yé]\n"
    document = yaml_reader.parse(text, "s.yaml")
    assert document.source_map.positions == {
        (): (1, 1),
        ("parameters",): (1, 1),
        ("parameters", "lr"): (2, 3),
        ("parameters", "lr", "min"): (2, 8),
        ("parameters", "lr", "max"): (3, 5),
        ("parameters", "b"): (4, 3),
        ("parameters", "b", 0): (4, 7),
        ("parameters", "b", 1): (4, 10),
    }


def test_the_old_booleans_are_remembered_as_they_were_written() -> None:
    document = yaml_reader.parse("a: [on, 'off', true]\nb: No\n", "s.yaml")
    assert document.words == {("a", 0): "on", ("b",): "No"}


def test_a_byte_order_mark_and_crlf_are_taken() -> None:
    text = decode(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: x\r\n", "s.yaml")
    assert data(text) == {"a": 1, "b": {"c": "x"}}


def test_an_alias_is_a_copy_of_what_it_names() -> None:
    got = data("a: &x {k: [1]}\nb: *x\n")
    assert got == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert isinstance(got, dict) and got["a"] is not got["b"]


def test_a_tab_inside_a_block_of_text_is_text() -> None:
    assert data("a: |\n  x\n  \ty\n") == {"a": "x\n\ty\n"}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
REFUSED = {
    "empty": b"",
    "comments": b"# one\n# two\n",
    "tab": b"a:\n\tb: 1\n",
    "tab after spaces": b"a:\n  \tb: 1\n",
    "tab below a value": b"a:\n  - x\n\t- y\n",
    "utf-16": "a: 1".encode("utf-16"),
    "latin-1": "a: 1\nb: é".encode("latin-1"),
    "binary": b"a: 1\n\x00\x01",
    "huge": b"#" * (2**20 + 1),
    "duplicate": b"a: 1\nb: 2\na: 3\n",
    "brackets": b"[" * 3000,
    "more brackets": b"[" * 1_000_000,
    "values": b"[" + b"1," * 200_000 + b"1]",
    "bomb": BOMB.encode(),
    "itself": b"a: &a [*a]",
    "merge": b"a: &a [b]\nc:\n  <<: *a\n",
    "python": b"a: !!python/object/apply:os.system [id]",
    "tag": b"a: !!str 1",
    "float tag": b"a: !!float x",
    "documents": b"a: 1\n---\nb: 2\n",
    "overflow": b"a: 1e400",
    "digits": b"a: " + b"9" * 5000,
    "a list as key": b"? [1]\n: 2",
    "no key": b"'': 1",
    "escape": b"'a\\x1b': 1\n'a\\x1b': 2",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_sweep_file_needs_is_refused_in_one_line(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    """B1, B2, B3: empty, tabs, UTF-16, binary, tags, merge keys, doubled keys, 1e400, …"""
    check(golden, f"yaml: {case}", refused(REFUSED[case]).notices, tmp_path)


def test_what_is_not_yaml_is_one_line_with_its_place() -> None:
    line = str(refused(b"a: 1\nb: [1, 2\nc: 3\n"))
    assert line.startswith("s.yaml:3:2: ") and "line 2" in line


@pytest.mark.parametrize("case", ["bomb", "brackets", "more brackets", "itself"])
def test_bombs_cost_no_time(case: str) -> None:
    """B2: alias bombs and a million brackets."""
    start = time.process_time()
    refused(REFUSED[case])
    assert time.process_time() - start < 0.5


def test_the_parser_without_libyaml_reads_the_same(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_reader, "_Loader", yaml.BaseLoader)
    for case, raw in REFUSED.items():
        if case != "values":  # slow there
            check(golden, f"yaml: {case}", refused(raw).notices, tmp_path)


def test_a_path_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with raises("file-not-found", f"{path}: "):
            read(path)


@pytest.mark.parametrize("command", ["[python, ${program}]", "[\n  python, ${program}]"])
def test_a_macro_without_quotes_in_brackets_gets_a_hint(command: str) -> None:
    with pytest.raises(SweepFileError) as caught:
        yaml_reader.parse(f"program: x.py\ncommand: {command}\n", "s.yaml")
    assert '"${…}"' in str(caught.value)
    assert '"${…}"' not in str(refused(b'command: ["${program}", [x}\n'))


def test_merge_keys_give_what_the_mapping_itself_does_not() -> None:
    text = """
base: &base {min: 0, max: 1}
more: &more {max: 2, q: 3}
one:
  max: 5
  <<: *base
two: {<<: [*base, *more], distribution: q_uniform}
quoted: {"<<": 1}
"""
    document = yaml_reader.parse(text, "s.yaml")
    assert isinstance(document.data, dict)
    assert document.data["one"] == {"min": 0, "max": 5}
    assert document.data["two"] == {"min": 0, "max": 1, "q": 3, "distribution": "q_uniform"}
    assert document.data["quoted"] == {"<<": 1}
    assert document.source_map.find(("one", "min"))[0] == (6, 3)
