"""The part of a snapshot that decides a program's results: what it can import, and what it names.

Found without running the program: imports are followed from its file, and a file of another kind
belongs to it if its name, or that of one of its directories, is in a text of the program or of the
sweep file. In doubt every file belongs to it: if a module is imported by a computed name, if a file
is no valid Python, or if no program is known.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from hpq.code.snapshot import Files
from hpq.domain.sweep import Launch
from hpq.domain.trial import Json

_IMPORTERS = frozenset({"import_module", "__import__", "run_module", "run_path"})
# What finds modules that no text names, or runs any text.
_FINDERS = frozenset({"exec", "iter_modules", "walk_packages", "spec_from_file_location"})
_TOKEN = re.compile(r"[\w./*\-]+")
_IMPORTED = re.compile(r"(?:\bimport|\bfrom|-m)\s+([A-Za-z_][\w.]*)")  # by a shell's line
_FILLED_IN = re.compile(r"\{[^{}]*\}|%[sd]")  # of a text such as "conf/{}.yaml"
_SOURCES = ("src", "lib")  # directories that an installed package is imported from
# A name such as plot.png is a file's, and none of a module plot.
_ENDINGS = frozenset(
    "bin ckpt csv db gif gz h5 html ipynb jpeg jpg json jsonl log md npy npz onnx out parquet pdf"
    " pickle pkl png pt pth py safetensors sh svg tar toml tsv txt yaml yml zip".split()
)


class _InDoubt(Exception):
    """The program may import any file."""


def parse_python(content: bytes, name: str = "") -> ast.Module:
    """Parse a user's code, without warnings: they would quote its lines.

    Raises:
        SyntaxError: it is not Python, or nested too deep.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(content, name)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deep") from None


def reach(launch: Launch, files: Files, texts: Iterable[str]) -> set[str]:
    """Return the names of the files that a launch can import or that it names.

    `texts` are those of the sweep file.
    """
    top = launch.root or launch.code_dir
    folder = os.path.relpath(launch.code_dir, top) if top else "."
    words = [os.path.normpath(os.path.join(folder, w)) for w in (launch.program, *launch.command)]
    starts = [word for word in words if word in files]
    modules = [name for name in (launch.trainer.partition(":")[0], *launch.preload) if name]
    if launch.program and words[0] not in files:
        modules.append(launch.program)  # of python -m
    texts = [*texts]
    try:
        walk = _Walk(files, folder, starts)
        found = walk.of(starts, modules, texts)
        if walk.changes_path:
            found = _Walk(files, folder, starts, changes_path=True).of(starts, modules, texts)
    except _InDoubt:
        return set(files)
    return found


def texts_of(data: Json) -> Iterator[str]:
    """Yield the texts in data, but no keys."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for one in data.values():
            yield from texts_of(one)
    elif isinstance(data, list):
        for one in data:
            yield from texts_of(one)


class _Walk:
    """Follows imports and names from file to file.

    `changes_path`: a file changes sys.path, so that modules may be in any folder.
    """

    def __init__(
        self, files: Files, folder: str, starts: Iterable[str], *, changes_path: bool = False
    ) -> None:
        self.changes_path = changes_path
        self._files = files
        self._found: set[str] = set()
        self._open: list[str] = []
        self._folders = {str(one) for name in files for one in PurePosixPath(name).parents}
        # As of `python train.py` and of `python -m train`.
        above = [str(PurePosixPath(name).parent) for name in starts]
        self._path = list(dict.fromkeys([*above, folder, ".", *_SOURCES]))
        self._named: dict[str, list[str]] = {}  # file name, stem or directory → files
        for name in files:
            path = PurePosixPath(name)
            keys = {path.name, path.suffix} - {""}
            if path.suffix != ".py":
                keys |= {path.stem, *path.parent.parts}
            for key in keys:
                self._named.setdefault(key, []).append(name)

    def of(self, starts: Iterable[str], modules: Iterable[str], texts: Iterable[str]) -> set[str]:
        """Return what can be reached.

        Raises:
            _InDoubt: that may be any file.
        """
        for name in starts:
            self._add(name)
        for module in modules:
            self._import(module.split("."))
        if not self._open:
            raise _InDoubt
        for text in texts:
            self._name(text)
        while self._open:
            name = self._open.pop()
            content = self._files[name][0]
            if name.endswith(".py"):
                self._read(name, content)
            else:
                self._name(content.decode("utf-8", "replace"))
        return self._found

    def _add(self, name: str) -> None:
        if name in self._files and name not in self._found:
            self._found.add(name)
            self._open.append(name)

    def _read(self, name: str, content: bytes) -> None:
        try:
            tree = parse_python(content)
        except SyntaxError:
            raise _InDoubt from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                self._import_from(name, node)
            elif isinstance(node, ast.Call):
                self._call(name, node)
            elif isinstance(node, ast.List | ast.Tuple):
                self._run_module(node.elts)
            elif isinstance(node, ast.Attribute) and node.attr == "path":
                above = node.value
                self.changes_path |= isinstance(above, ast.Name) and above.id == "sys"
        for text in _texts(tree):
            self._name(text)

    def _import_from(self, name: str, node: ast.ImportFrom) -> None:
        module = node.module.split(".") if node.module else []
        for alias in node.names:
            whole = module if alias.name == "*" else [*module, alias.name]
            if node.level:
                self._walk_down(_above(name, node.level), whole)
            else:
                self._import(whole)

    def _call(self, name: str, node: ast.Call) -> None:
        """Follow an import by a function.

        Raises:
            _InDoubt: the name of the module is computed.
        """
        function = ""
        if isinstance(node.func, ast.Attribute):
            function = node.func.attr
        elif isinstance(node.func, ast.Name):
            function = node.func.id
        if function in _FINDERS:
            raise _InDoubt
        if function not in _IMPORTERS:
            return
        first = node.args[0] if node.args else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            raise _InDoubt
        module = first.value.lstrip(".")
        level = len(first.value) - len(module)
        if level:
            self._walk_down(_above(name, level), module.split("."))
        else:
            self._import(module.split("."))

    def _run_module(self, words: Iterable[ast.expr]) -> None:
        """Follow the module in a list of words such as ["python", "-m", "evaluate"]."""
        values = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for before, word in pairwise(values):
            if before == "-m" and isinstance(word, str):
                self._import(word.split("."))

    def _import(self, module: list[str]) -> None:
        """Add the files of a module; one that the path lacks may be in any folder."""
        found = self._on_path(module[0])
        if self.changes_path or not (found or module[0] in sys.stdlib_module_names):
            found = [folder for folder in self._folders if self._has(folder, module[0])]
        for folder in found:
            self._walk_down(folder, module)

    def _on_path(self, top: str) -> list[str]:
        return [folder for folder in self._path if self._has(folder, top)][:1]

    def _has(self, folder: str, top: str) -> bool:
        whole = _joined(folder, top)
        return f"{whole}.py" in self._files or whole in self._folders

    def _walk_down(self, folder: str, module: Iterable[str]) -> None:
        """Add the files that Python runs to import a module of a folder."""
        place = folder
        self._add(_joined(place, "__init__.py"))
        for part in module:
            place = _joined(place, part)
            self._add(f"{place}.py")
            self._add(f"{place}/__init__.py")
            self._add(f"{place}/__main__.py")

    def _name(self, text: str) -> None:
        """Add the files that a text names, and the modules that it names with a dot."""
        for module in _IMPORTED.findall(text):
            self._import(module.split("."))
        is_word = not re.search(r"\s", text.strip())
        for token in _TOKEN.findall(_FILLED_IN.sub("*", text)):
            if not is_word and not re.search(r"[./]", token):
                continue  # of a sentence
            for part in token.split("/"):
                self._name_part(part)
            ending = token.rpartition(".")[2]
            if "." in token and "/" not in token and ending not in _ENDINGS:
                module = token.strip(".").split(".")
                for folder in self._on_path(module[0]):
                    self._walk_down(folder, module)

    def _name_part(self, part: str) -> None:
        """Add the files that a part of a path names: `conf`, `a.yaml`, `.yaml`, `*_a.yaml`."""
        for name in self._named.get(part, ()):
            self._add(name)
        pattern = f"*{part}" if part.startswith(("_", "-")) else part
        if "*" in pattern and re.search(r"\w", pattern):
            for key in fnmatch.filter(self._named, pattern):
                for name in self._named[key]:
                    self._add(name)


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module; a docstring is none: it names nothing."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in alone:
            continue
        if isinstance(node.value, str):
            yield node.value


def _above(name: str, level: int) -> str:
    """Return the folder in which a relative import of a file begins."""
    folder = PurePosixPath(name)
    for _ in range(level):
        folder = folder.parent
    return str(folder)


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"
