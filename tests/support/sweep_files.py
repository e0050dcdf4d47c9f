"""Compare the errors of sweep files with tests/golden/sweep-file-errors.txt: place, text and id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpq.domain.trial import Json
from hpq.errors import SweepFileError
from hpq.notice import Notice
from hpq.yamlfile import yaml_reader
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import SweepSpec
from tests.support.constants import ROOT
from tests.support.golden import Golden
from tests.support.sweep_schema import accepts, is_beyond

_BLOCK = re.compile(r"^```yaml(?: sweep\.yaml)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Their YAML is of Kubernetes, or of `hpq manifests`.
CLUSTER_PAGES = {"kubernetes", "monitoring"}
# What an example of the docs leaves out.
_REST = {
    "method": "method: random\n",
    "parameters": "parameters: {a: {min: 0.0, max: 1.0}}\n",
    "program": "program: train.py\n",
}
_LINE = re.compile(r"(?:s\.yaml:)?(?:\d+:\d+|--\w+ [^ :]+): .*\[[a-z-]+\]")


def whole(text: str) -> str:
    """Complete an example that leaves out method, parameters or program."""
    data = yaml_reader.parse(text, "s.yaml").data
    if isinstance(data, list):
        return text
    has_code = {"program", "trainer"} & data.keys()  # type: ignore[union-attr]
    rest = {key: line for key, line in _REST.items() if key != "program" or not has_code}
    return text + "".join(line for key, line in rest.items() if key not in data)  # type: ignore[operator]


def _shipped() -> dict[str, str]:
    """Return the text of each sweep file of the repository, by its path and number."""
    files = [*ROOT.glob("configs/*.yaml"), *ROOT.glob("examples/*/*.yaml")]
    found = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in sorted(files)
        if path.name != "hydra_config.yaml"  # Hydra's own
    }
    pages = [page for page in ROOT.glob("docs/**/*.md") if page.stem not in CLUSTER_PAGES]
    for page in sorted([ROOT / "README.md", *pages]):
        for number, block in enumerate(_BLOCK.findall(page.read_text("utf-8"))):
            found[f"{page.relative_to(ROOT)} {number}"] = block
    return found


SHIPPED = _shipped()


def check(golden: Golden, section: str, notices: Iterable[Notice], folder: Path) -> None:
    """Assert the notices of a file, each one line with a place or an option, and an id."""
    lines = [str(one).replace(f"{folder}/", "") for one in notices]
    assert all(map(_LINE.fullmatch, lines)), lines
    golden.check("sweep-file-errors", section, "\n".join(lines))


def spec_of(folder: Path, text: str, **flags: object) -> SweepSpec:
    """Load a sweep file s.yaml of this text."""
    file = folder / "s.yaml"
    file.write_text(text, "utf-8")
    return load(file, **flags)  # type: ignore[arg-type]


def refused_file(folder: Path, text: str, **flags: object) -> SweepFileError:
    """Return the error of a sweep file s.yaml of this text, which the JSON schema refuses too."""
    with pytest.raises(SweepFileError) as caught:
        spec_of(folder, text, **flags)
    if not flags:
        assert not accepts(_data(text)) or all(map(is_beyond, caught.value.notices)), "the schema"
    return caught.value


def _data(text: str) -> Json:
    """Return the data of a file, or null, which is no sweep either, if it is not YAML."""
    try:
        return yaml_reader.parse(text, "s.yaml").data
    except SweepFileError:
        return None


def is_refused(golden: Golden, section: str, folder: Path, text: str, **flags: object) -> None:
    """Assert that a sweep file of this text is refused, with these errors."""
    check(golden, section, refused_file(folder, text, **flags).notices, folder)
