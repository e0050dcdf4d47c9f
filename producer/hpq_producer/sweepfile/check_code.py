"""Check a sweep against the code that it names: trainer or program, command, parameter values.

A built-in trainer's values are checked against hpq.domain.trainer_specs before parameters are
drawn. Of other code, only the command line can be checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hpq.code.command import MACROS, is_plain_python
from hpq.domain.sweep import FUNCTION
from hpq.domain.trainer_specs import BUILT_IN, Number, TrainerSpec
from hpq.domain.trial import Json
from hpq.search.space import Space
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.problems import KeyPath, Problems, nearest, shown

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)
_MACRO = re.compile(r"\$\{(?!envvar:[A-Z0-9_]+\})([^}]*)\}\Z")
_MACRO_NAMES = tuple(macro[2:-1] for macro in MACROS)
_MACRO_FORM = "${{{}}}"
_MAX_NAMES = 12


def check_code(data: Mapping[str, Json], out: Problems) -> None:
    """Report a file that does not name exactly one of trainer and program, and no command."""
    trainer, program = data.get("trainer"), data.get("program")
    if trainer is not None and program is not None:
        out.add_conflict(("trainer",), "excludes program; keep the one to run")
    elif isinstance(trainer, str):
        _trainer(trainer, data, out)
    elif isinstance(program, str):
        _program(data, out)
    elif trainer is None and program is None and "command" in data:
        _command_alone(data, out)
    elif trainer is None and program is None:
        built_in = ", ".join(BUILT_IN)
        what = "no code to run; write program: train.py, or trainer: one of"
        function = "function, if a script calls wandb.agent(id, function=f)"
        out.add_missing((), f"{what} {built_in}; or trainer: {function}")


def _trainer(trainer: str, data: Mapping[str, Json], out: Problems) -> None:
    if trainer not in (*BUILT_IN, FUNCTION) and not _FUNCTION.match(trainer):
        hint = nearest(trainer, tuple(BUILT_IN))
        allowed = f"{', '.join(BUILT_IN)}, or package.module:function"
        out.add(
            ("trainer",),
            f"unknown trainer {shown(trainer)}; use one of {allowed}{hint}",
            code="unknown-trainer",
        )
    if "command" in data:
        out.add_conflict(("command",), "is for a program, and this sweep has a trainer; remove it")
    if "preload" in data:
        out.add_conflict(("preload",), "is for a program, and this sweep has a trainer; remove it")


def _command_alone(data: Mapping[str, Json], out: Problems) -> None:
    """Check a command without a program, which W&B allows if the command names its script."""
    items = data["command"]
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if item == "${program}":
            out.add_missing(("command", index), "no program is set; write program: train.py")
    _program(data, out)


def _program(data: Mapping[str, Json], out: Problems) -> None:
    if data.get("resident") is True:
        out.add_conflict(("resident",), "is for a trainer, and this sweep has a program; remove it")
    items, space = data.get("command"), data.get("parameters")
    words = tuple(map(str, items)) if isinstance(items, list) else ()
    if "preload" in data and not is_plain_python(words, str(data.get("program", ""))):
        what = "needs python to start the file; remove what is between them, or preload"
        out.add_conflict(("preload",), what)
    derived = data.get("derive")
    known = {*_MACRO_NAMES, *(space if isinstance(space, dict) else ())}
    known |= {*derived} if isinstance(derived, dict) else set()
    for index, item in enumerate(items if isinstance(items, list) else ()):
        match = _MACRO.match(str(item))
        if match and match[1] not in known:
            hint = nearest(match[1], tuple(known), _MACRO_FORM)
            if match[1].startswith("env:"):
                hint = f"; did you mean '${{envvar:{match[1][4:]}}}'?"
            hint = hint or f"; known: {', '.join(_MACRO_NAMES)}{_and_parameters(space)}"
            out.add(("command", index), f"unknown macro {shown(item)}{hint}", code="unknown-macro")


def check_space(trainer: TrainerSpec, space: Space, out: Problems) -> None:
    """Report every value of a space that a built-in trainer rejects."""
    for names, leaf in space.parameters.items():
        path: KeyPath = ("parameters", names[0])
        spec = trainer.params.get(names[0])
        if spec is None:
            out.add(path, str(trainer.problem(names[0], None)), code="unknown-parameter")
        elif len(names) > 1:
            out.add(path, f"nested; trainer {trainer.name} accepts only plain values")
        elif isinstance(spec, Number) and spec.whole and leaf.is_fractional:
            text = "draws fractions, but the trainer needs a whole number; use int_uniform, or q: 1"
            out.add(path, text, code="fractional")
        else:
            known = (((*path, *key), value) for key, value in leaf.known())
            check_known(trainer, names[0], known, out)
    for name, _ in space.derive:
        if name not in trainer.params:
            out.add(("derive", name), str(trainer.problem(name, None)), code="unknown-parameter")


def check_words(words: Mapping[KeyPath, str], out: Problems) -> None:
    """Warn of parameter values that W&B reads differently: no, 1_000, 1:30, 012; report tuples.

    Call this for user code only: a built-in trainer's values are checked one by one.
    """
    for path, word in words.items():
        if path[0] != "parameters" and not isinstance(path[0], int):
            continue
        if yaml_reader.TORN_TUPLE.match(word):
            out.add(path, yaml_reader.reading(word), code="ambiguous-word")
        else:
            out.warn(path, yaml_reader.reading(word), code="ambiguous-word")


def check_known(
    trainer: TrainerSpec, name: str, values: Iterable[tuple[KeyPath, Json]], out: Problems
) -> None:
    """Report each (path, value) of a parameter that a built-in trainer rejects."""
    for path, value in values:
        wrong = trainer.problem(name, value)
        if not wrong:
            continue
        spec = trainer.params.get(name)
        if spec is None:
            out.add(path, wrong, code="unknown-parameter")
        else:
            out.add(path, wrong + (yaml_reader.unquoted(value) if isinstance(spec, Number) else ""))


def _and_parameters(space: Json) -> str:
    if not isinstance(space, dict):
        return ""
    more = ", …" if len(space) > _MAX_NAMES else ""
    return f" and the parameters {', '.join(list(space)[:_MAX_NAMES])}{more}"
