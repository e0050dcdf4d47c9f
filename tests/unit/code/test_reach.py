"""Which files of a snapshot decide the results of a program."""

from __future__ import annotations

import pytest

from hpq.code.reach import reach, texts_of
from hpq.domain.sweep import Launch
from hpq.domain.trial import Json

PROGRAM = Launch(program="train.py", command=("${interpreter}", "${program}", "${args}"))
UNRELATED = {"plot.py": "import train", "tools/model.py": "", "ci.yaml": "on: push"}


def reached(program: str, launch: Launch = PROGRAM, texts: Json = None, **more: str) -> set[str]:
    """Return what `train.py` with this text reaches beside itself."""
    files = {"train.py": program, **UNRELATED, **more}
    snapshot = {name: (text.encode(), 0o644) for name, text in files.items()}
    return reach(launch, snapshot, texts_of(texts)) - {"train.py"}


@pytest.mark.parametrize(
    ("program", "more", "found"),
    [
        ("print(1)", {}, set()),
        ("import net", {"net.py": "", "lib/net.py": ""}, {"net.py"}),
        ("import net", {"net.py": "import deep", "deep.py": ""}, {"net.py", "deep.py"}),
        ("def f():\n    import net", {"net.py": ""}, {"net.py"}),
        ("from a.b import c", {"a/__init__.py": "", "a/b.py": "", "a/d.py": ""},
         {"a/__init__.py", "a/b.py"}),
        ("from a import b", {"a/b.py": ""}, {"a/b.py"}),  # without __init__.py
        ("import a.b", {"a/__init__.py": "from . import d", "a/b.py": "from ..z import y",
                        "a/d.py": "", "z.py": ""},
         {"a/__init__.py", "a/b.py", "a/d.py", "z.py"}),
        ("import pkg.net", {"src/pkg/net.py": ""}, {"src/pkg/net.py"}),
        ("import pkg.net", {"deep/er/pkg/net.py": ""}, {"deep/er/pkg/net.py"}),
        ("import net\nx" + ".a" * 400, {"net.py": ""}, {"net.py"}),
        ("import sys\nsys.path.insert(0, x)\nimport net", {"net.py": "", "other/net.py": ""},
         {"net.py", "other/net.py"}),
        ("import importlib\nimportlib.import_module('a.b')", {"a/b.py": ""}, {"a/b.py"}),
        ("run(['python', '-m', 'evaluate'])", {"evaluate.py": ""}, {"evaluate.py"}),
        ("run('python evaluate.py --quick')", {"evaluate.py": ""}, {"evaluate.py"}),
        ("run(\"python -c 'import evaluate'\")", {"evaluate.py": ""}, {"evaluate.py"}),
        ("open('conf/a.yaml')", {"conf/a.yaml": "", "other.yaml": ""}, {"conf/a.yaml"}),
        ("main(config_path='conf')", {"conf/db/a.yaml": "_target_: nets.Big", "nets.py": ""},
         {"conf/db/a.yaml", "nets.py"}),
        ("open(f'{x}_small.json')", {"a_small.json": "", "a.json": ""}, {"a_small.json"}),
        ("open('{}.json'.format(x))", {"a.json": ""}, {"a.json"}),
        ("savefig('plot.png')", {}, set()),
        ("'''Results are drawn by plot.py from conf.'''", {"conf/a.yaml": ""}, set()),
    ],
)  # fmt: skip
def test_a_program_reaches_what_it_imports_and_names(
    program: str, more: dict[str, str], found: set[str]
) -> None:
    assert reached(program, **more) == found


@pytest.mark.parametrize(
    "program",
    [
        "import importlib\nimportlib.import_module(name)",
        "__import__(f'models.{name}')",
        "for m in pkgutil.iter_modules(p): pass",
        "exec(text)",
        "print 'Python 2'",
        "x = " + "not " * 9_000 + "y",  # a data file may nest deeper than the parser
    ],
)
def test_a_program_that_imports_by_a_computed_name_reaches_all(program: str) -> None:
    assert reached(program) == set(UNRELATED)


@pytest.mark.parametrize(
    ("launch", "found"),
    [
        (Launch(trainer="net:fit"), {"net.py", "sub/__init__.py"}),
        (Launch(program="sub.run", command=("${interpreter}", "-m", "${program}")),
         {"sub/__init__.py", "sub/run.py"}),
        (Launch(command=("bash", "go.sh")), {"go.sh", "net.py", "sub/__init__.py"}),
        (Launch(program="run.py", code_dir="/w/sub", root="/w"), {"sub/run.py"}),
    ],
)  # fmt: skip
def test_each_kind_of_launch_begins_at_its_own_files(launch: Launch, found: set[str]) -> None:
    files = {
        "net.py": "import sub",
        "sub/__init__.py": "",
        "sub/run.py": "",
        "go.sh": "python net.py",
        "spare.py": "",
    }
    snapshot = {name: (text.encode(), 0o644) for name, text in files.items()}
    assert reach(launch, snapshot, ()) == found


def test_a_command_that_starts_no_file_reaches_all() -> None:
    assert reached("", Launch(command=("make", "train"))) == set(UNRELATED)


def test_the_values_of_a_sweep_file_name_files_and_modules() -> None:
    texts: Json = {
        "parameters": {"config": {"values": ["a.yaml", "b"]}, "net": {"value": "nets.Big"}}
    }
    found = reached("", PROGRAM, texts, **{"a.yaml": "", "b.toml": "", "c.yaml": "", "nets.py": ""})
    assert found == {"a.yaml", "b.toml", "nets.py"}
