"""Check a sweep against the code that it names: trainer or program, command, parameter values.

Values of a shipped trainer's parameters are checked against hpq.domain.trainer_specs before
anything is drawn; of other code only the command line is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hpq.code.command import GPUS, MACROS
from hpq.domain.trainer_specs import SHIPPED, Number, TrainerSpec
from hpq.domain.trial import Json
from hpq.search.discrete import Distribution
from hpq.search.space import Space
from hpq_producer.sweepfile import values, yaml_reader
from hpq_producer.sweepfile.errors import KeyPath, Problems, shown

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)
_MACRO = re.compile(r"\$\{(?!envvar:[A-Z0-9_]+\})([^}]*)\}\Z")
_MACRO_NAMES = tuple(macro[2:-1] for macro in MACROS)
_MACRO_FORM = "${{{}}}"
# A word for an option, not a shell's: what stands in it as ${…} and is not passed on to a shell.
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*=\S+\Z")
_INNER = re.compile(r"\$\{(?!envvar:[A-Z0-9_]*\})([^{}]*)\}")


_MOST_NAMES = 12
_AS_IT_STANDS = "it is passed as it stands"


def check_code(data: Mapping[str, Json], out: Problems) -> None:
    """Note it where the file does not name exactly one of trainer and program, nor a command."""
    trainer, program = data.get("trainer"), data.get("program")
    if trainer is not None and program is not None:
        out.add(
            ("trainer",),
            "cannot stand beside program; keep the one that is to run",
            code="conflicting-keys",
        )
    elif isinstance(trainer, str):
        _trainer(trainer, data, out)
    elif isinstance(program, str):
        _program(data, out)
    elif trainer is None and program is None and "command" in data:
        _command_alone(data, out)
    elif trainer is None and program is None:
        shipped = ", ".join(SHIPPED)
        out.add(
            (),
            f"names no code; write program: train.py, or trainer: one of {shipped}",
            code="missing-key",
        )


def _trainer(trainer: str, data: Mapping[str, Json], out: Problems) -> None:
    if trainer not in SHIPPED and not _FUNCTION.match(trainer):
        hint = values.nearest(trainer, tuple(SHIPPED))
        allowed = f"one of {', '.join(SHIPPED)}, nor package.module:function"
        out.add(("trainer",), f"{shown(trainer)} is not {allowed}{hint}", code="unknown-trainer")
    if "command" in data:
        out.add(
            ("command",),
            "goes with a program, not with a trainer; remove it",
            code="conflicting-keys",
        )


def _command_alone(data: Mapping[str, Json], out: Problems) -> None:
    """As with W&B, a command that names what it starts needs no program."""
    items = data["command"]
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if item == "${program}":
            out.add(
                ("command", index),
                "there is no program; write program: train.py",
                code="missing-key",
            )
    _program(data, out)


def _program(data: Mapping[str, Json], out: Problems) -> None:
    if "wandb" in data and "program" not in data and "command" not in data:
        out.add(
            ("wandb",),
            "only a program can be given another wandb; remove it",
            code="conflicting-keys",
        )
    if data.get("resident") is True:
        out.add(
            ("resident",),
            "only a trainer can stay between trials; remove it",
            code="conflicting-keys",
        )
    items, space = data.get("command"), data.get("parameters")
    known = {*_MACRO_NAMES, *(space if isinstance(space, dict) else ())}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        match = _MACRO.match(str(item))
        if match and match[1] not in known:
            hint = values.nearest(match[1], tuple(known), _MACRO_FORM)
            hint = hint or f"; there are {', '.join(_MACRO_NAMES)}{_and_parameters(space)}"
            out.add(("command", index), f"no macro {shown(item)}{hint}", code="unknown-macro")
        elif isinstance(item, str) and isinstance(space, dict) and _OPTION.match(item):
            _warn_of_macros(item, tuple(space), ("command", index), out)


def _warn_of_macros(item: str, names: tuple[str, ...], path: KeyPath, out: Problems) -> None:
    """Warn of what stands as ${…} inside a longer word and becomes nothing."""
    for inner in _INNER.finditer(item):
        name = inner[1]
        if inner[0] == GPUS:
            continue
        if name in _MACRO_NAMES:
            out.warn(
                path,
                f"{inner[0]!r} counts only where it is the whole item: {_AS_IT_STANDS}",
                code="macro-within-word",
            )
        elif name not in names:
            hint = values.nearest(name, names, _MACRO_FORM)
            hint = hint or f"; the parameters are {_some(names)}"
            out.warn(
                path,
                f"{inner[0]!r} is no macro and no parameter: {_AS_IT_STANDS}{hint}",
                code="unknown-macro",
            )


def check_space(trainer: TrainerSpec, space: Space, out: Problems) -> None:
    """Note every value of a space that a shipped trainer would refuse."""
    for names, leaf in space.leaves:
        path: KeyPath = ("parameters", names[0])
        spec = trainer.params.get(names[0])
        if spec is None:
            out.add(path, str(trainer.problem(names[0], None)), code="unknown-parameter")
        elif len(names) > 1:
            out.add(path, f"nested; trainer {trainer.name} takes plain values")
        elif isinstance(spec, Number) and spec.whole and leaf.is_fractional:
            out.add(
                path,
                "draws fractions of a whole number; use int_uniform, or q: 1",
                code="fractional",
            )
        else:
            check_known(trainer, names[0], _known(leaf, path), out)


def warn_of_words(words: Mapping[KeyPath, str], out: Problems) -> None:
    """Warn of parameter values that W&B or a reader may take for others: no, 1_000, 1:30, 012.

    Of code that is not ours: a shipped trainer's values are checked by themselves.
    """
    for path, word in words.items():
        if path[0] == "parameters" or isinstance(path[0], int):
            out.warn(path, yaml_reader.reading(word), code="ambiguous-word")


def check_known(
    trainer: TrainerSpec, name: str, values: Iterable[tuple[KeyPath, Json]], out: Problems
) -> None:
    """Note each of a parameter's values, given with its path, that a shipped trainer refuses."""
    for path, value in values:
        wrong = trainer.problem(name, value)
        if wrong:
            out.add(path, wrong)


def _known(leaf: Distribution, path: KeyPath) -> Iterable[tuple[KeyPath, Json]]:
    return (((*path, *key), value) for key, value in leaf.known())


def _and_parameters(space: Json) -> str:
    return f" and the parameters {_some(tuple(space))}" if isinstance(space, dict) else ""


def _some(names: tuple[str, ...]) -> str:
    """The names, or the first of many."""
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
