"""W&B's command template and parameter set → the argv of a program. Pure; never a shell.

A macro is replaced if it is the whole item; `${envvar:NAME}` and the extensions `${parameter}` and
`${gpus}` also inside a longer one. Source: W&B's agent.

`${interpreter}` is the Python on PATH, as with W&B, and not the one that runs hpq: hpq often has an
environment of its own (pipx, a virtual one) without the user's libraries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from hpq import process_start as hpq_process
from hpq.domain.sweep import Launch
from hpq.domain.trial import Json, Params
from hpq.errors import BadParams, SettingsError

_ENV = "/usr/bin/env"
DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_ENVVAR = re.compile(r"\$\{envvar:([A-Z0-9_]*)\}")
# A word with white space, or with a character that a shell interprets, may be a line for a shell.
_SHELL = re.compile(r"""[\s;&|<>()$`"'\\*?\[\]{}~#!^]""")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
# Text that Hydra reads as it is; without quotes, 1e-4, null and true are no text.
_HYDRA_WORD = re.compile(r"(?!(?:null|true|false|inf|nan)\Z)[A-Za-z_/][\w./@%*+|-]*", re.A | re.I)
_HYDRA_KEY = re.compile(r"[\\()\[\]{}:=, \t]")
_ESCAPED = r"\\\g<0>"
_BEFORE_QUOTE = re.compile(r"(\\*)(\"|\Z)")  # backslashes count there alone
_OPEN_INTERPOLATION = re.compile(r"(\\*)\$\{(?![^}]*\})")
_INNER = re.compile(r"\$\{((?:\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_./@-]*)\}")


def text(value: Json) -> str:
    """Return a value as W&B's agent writes it on a command line: as Python prints it."""
    return value if isinstance(value, str) else str(value)


def _hydra(value: Json) -> str:
    """Return a value in the grammar of Hydra's overrides, which has no None and no quoted keys."""
    if isinstance(value, dict):
        pairs = (f"{_HYDRA_KEY.sub(_ESCAPED, k)}:{_hydra(v)}" for k, v in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, str):
        return value if _HYDRA_WORD.fullmatch(value) else _hydra_quoted(value)
    return "null" if value is None else str(value)


def _hydra_quoted(value: str) -> str:
    """Quote a text for Hydra; a whole `${…}` in it stays OmegaConf's interpolation."""
    value = _OPEN_INTERPOLATION.sub(r"\1\1\\${", value)
    return '"' + _BEFORE_QUOTE.sub(lambda m: m[1] * 2 + (m[2] and r"\""), value) + '"'


def _booleans(params: Params) -> list[str]:
    flags = [f"--{name}" for name, value in params.items() if value is True]
    rest = [f"--{n}={text(v)}" for n, v in params.items() if not isinstance(v, bool)]
    return flags + rest


_ARGS: Mapping[str, Callable[[Params], list[str]]] = {
    "${args}": lambda p: [f"--{n}={text(v)}" for n, v in p.items()],
    "${args_no_equals}": lambda p: [w for n, v in p.items() for w in (f"--{n}", text(v))],
    "${args_no_hyphens}": lambda p: [f"{n}={text(v)}" for n, v in p.items()],
    "${args_no_boolean_flags}": _booleans,
    "${args_json}": lambda p: [json.dumps(dict(p))],
    "${args_append_hydra}": lambda p: [f"+{n}={_hydra(v)}" for n, v in p.items()],
    "${args_override_hydra}": lambda p: [f"++{n}={_hydra(v)}" for n, v in p.items()],
}
_HYDRA = frozenset({"${args_append_hydra}", "${args_override_hydra}"})
_HYDRA_DIR = "hydra.run.dir="
_MULTIRUN = frozenset({"-m", "--multirun"})  # sets directories itself
_INTERPRETER = re.compile(r"(?:python|pypy|Rscript|julia|node|ruby|perl)[\d.]*")
_STARTER = re.compile(rf"{_INTERPRETER.pattern}|(?:ba|da|z)?sh")
_WITH_VALUE = frozenset({"-W", "-X"})
_SCRIPT_S = 20.0
# `-c` puts the current directory first, and before Python 3.11 no option prevents that. A module
# there is another person's code, which a question must not run.
_AWAY_FROM_HERE = "import sys; sys.path[:] = filter(None, sys.path)\n"
GPUS = "${gpus}"  # hpq's own; a parameter of that name takes precedence
MACROS = ("${env}", "${interpreter}", "${program}", *_ARGS, "${args_json_file}", GPUS)


def variables_of(word: str) -> list[str]:
    """Return the environment variables that a word of a command names."""
    return _ENVVAR.findall(word)


def is_in_users_directory(launch: Launch) -> bool:
    """True if trials work in the user's own directory, on the machine that enqueued them.

    Others (`-m`, shells, launchers, console scripts) import from their working directory: theirs is
    the copy of the code.
    """
    return bool(launch.trainer) or starts_program(launch.command, launch.program)


def starts_program(command: tuple[str, ...], program: str) -> bool:
    """True if an interpreter starts the program's file: not `-m`, a shell, or a launcher."""
    starter, script = started(command)
    is_interpreter = starter == "${interpreter}" or bool(_INTERPRETER.fullmatch(starter))
    is_program = script in ("${program}", program) or script.endswith(".py")
    return bool(script) and is_interpreter and is_program


def is_plain_python(command: tuple[str, ...], program: str) -> bool:
    """True for `PYTHON FILE …`, without options or variables before the file."""
    starter, script = started(command)
    words = [word for word in command or DEFAULT if word not in ("${env}", _ENV)]
    is_python = starter == "${interpreter}" or starter.startswith("python")
    return is_python and words[1:2] == [script] and starts_program(command, program)


def started(command: tuple[str, ...]) -> tuple[str, str]:
    """Return the name of a command's interpreter or shell, and the file that it starts, or ""."""
    words = [word for word in command or DEFAULT if word not in ("${env}", _ENV, "env")]
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        del words[0]
    starter = Path(words[0]).name if words else ""
    if starter != "${interpreter}" and not _STARTER.fullmatch(starter):
        return "", ""
    del words[0]
    while words and words[0].startswith("-") and not re.match(r"-[A-Za-z]*[mc]", words[0]):
        del words[: 2 if words[0] in _WITH_VALUE else 1]
    return starter, words[0] if words and not words[0].startswith("-") else ""


def arguments(command: tuple[str, ...], params: Params) -> list[str]:
    """Return the arguments of a trial in the command's form; `--name=value` if it has none."""
    macro = next((item for item in command if item in _ARGS), "${args}")
    return _ARGS[macro](params)


def argv(
    command: tuple[str, ...],
    program: str,
    params: Params,
    *,
    environ: Mapping[str, str],
    params_file: str,
    interpreter: str,
    out: str = "",
    gpus: int = 1,
) -> tuple[str, ...]:
    """Return the argv of one attempt; `params_file` is for `${args_json_file}`.

    `interpreter` is the Python of programs (see the function); `out` is the directory of a Hydra
    program whose command sets none; `gpus` is the trial's number of GPUs.
    """
    single = {
        "${env}": _ENV,
        "${interpreter}": interpreter,
        "${program}": program,
        "${args_json_file}": params_file,
    }
    words: list[str] = []
    for item in command or DEFAULT:
        if item in _ARGS:
            words += _ARGS[item](params)
        elif item in single:
            words.append(single[item])
        else:
            words.append(_expand(item, {"gpus": gpus, **params}, environ))
    has_directory = any(w.startswith(_HYDRA_DIR) or w in _MULTIRUN for w in words)
    if out and _HYDRA & set(command) and not has_directory:
        words.append(_HYDRA_DIR + _hydra(out))
    return tuple(words)


def _expand(item: str, params: Params, environ: Mapping[str, str]) -> str:
    """Replace the macros inside a word.

    Raises:
        BadParams: a shell may read the word, and could read a value as more than one plain word.
    """
    may_be_line = _SHELL.search(_INNER.sub("", _ENVVAR.sub("", item)))
    item = _ENVVAR.sub(lambda m: environ.get(m[1], m[1]), item)

    def value(macro: re.Match[str]) -> str:
        if macro[1] not in params:
            return macro[0]
        written = text(params[macro[1]])
        if may_be_line and not _PLAIN.match(written):
            raise BadParams(
                f"{macro[1]}: {written!r} cannot be part of the command's word {item!r}, which a"
                " shell may read; write bash -c 'python t.py \"$@\"' _ ${args}"
            )
        return written

    return _INNER.sub(value, item)


def interpreter(environ: Mapping[str, str], given: str = "") -> str:
    """Return the Python of programs: `given` (HPQ_PYTHON), else the one on PATH, else hpq's own.

    Raises:
        SettingsError: HPQ_PYTHON is not an executable.
    """
    path = environ.get("PATH", os.defpath)
    if given:
        found = shutil.which(os.path.expanduser(given), path=path)
        if found is None:
            raise SettingsError(
                f"HPQ_PYTHON: no program {given!r} on this machine; set the full path of a Python,"
                " such as /home/me/venv/bin/python, or unset it to use the one on PATH",
                code="python-not-found",
            )
        return os.path.abspath(found)
    for name in ("python", "python3"):
        if found := shutil.which(name, path=path):
            return os.path.abspath(found)
    return sys.executable


def printed_by(python: str, script: str, environ: Mapping[str, str]) -> str:
    """Return what a script prints that a Python of programs runs, without hpq's secrets.

    The script imports nothing from the current directory.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be started, fails, or takes too long.
    """
    ours = hpq_process.ours(environ)
    done = subprocess.run(
        [python, "-c", _AWAY_FROM_HERE + script],
        env={name: value for name, value in environ.items() if name not in ours},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SCRIPT_S,
        check=True,
    )
    return done.stdout


def is_own(python: str) -> bool:
    """True for the Python that runs hpq, under any name in its environment."""
    # Links are not followed: the Pythons of all virtual environments link to one.
    one, other = Path(python), Path(sys.executable)
    return one == other or (one.parent == other.parent and one.name.startswith("python"))
