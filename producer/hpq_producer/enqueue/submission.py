"""A checked sweep file with its code and digest, each computed once.

`enqueue`, `run` and `plan` make one Submission and pass it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpq.code.command import starts_program
from hpq.domain.identity import digest
from hpq.notice import Notice
from hpq_producer.enqueue.code_discovery import DiscoveredCode, find_code
from hpq_producer.scaffold.script import rejections
from hpq_producer.sweepfile.errors import Problems
from hpq_producer.sweepfile.spec import SweepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A checked sweep file and the code that it runs."""

    spec: SweepSpec
    file: Path
    code: DiscoveredCode
    digest: str  # identifies the sweep: file, seed and code
    warnings: tuple[Notice, ...] = ()  # to show before the sweep runs


_AS_FLAGS = "${args_no_boolean_flags}"
_WAY_OUT = "; a command that names its options, such as --{0}=${{{0}}}, is not checked"
_PASSES_OPTIONS = frozenset({"${args}", "${args_no_equals}", _AS_FLAGS})


def _check_options(spec: SweepSpec, code: DiscoveredCode) -> tuple[Notice, ...]:
    """Return warnings of parameters that the program's argparse may reject as options.

    Raises:
        SweepFileError: it surely rejects some.
    """
    names, out = spec.source.get("parameters"), Problems(spec.source_map)
    derived = [name for name, _ in spec.space.derive] if spec.space else []
    macros = _PASSES_OPTIONS & set(spec.command)
    if code.files is None or not isinstance(names, dict) or len(macros) != 1:
        return ()
    if starts_program(spec.command, spec.keys.program) and spec.keys.program.endswith(".py"):
        script = code.folder / spec.keys.program
        passed = [*names, *derived]
        for name, why, is_sure in rejections(script, passed, flags_alone=_AS_FLAGS in macros):
            path = ("derive" if name in derived else "parameters", name)
            if is_sure:
                out.add(path, why + _WAY_OUT.format(name), code="option-rejected")
            else:
                out.warn(path, why, code="option-rejected")
    out.raise_errors()
    return out.sorted_warnings()


def prepare(
    spec: SweepSpec, file: Path, code_dir: str | None = None, *, is_live: bool = False
) -> Submission:
    """Find the code of a sweep file, and compute the sweep's digest.

    `code_dir` is --code, `is_live` --live.

    Raises:
        UserError: the code is missing, or too large to be sent.
        SweepFileError: the script's argparse rejects a parameter.
    """
    code = find_code(spec, file, Path.cwd(), code_dir, is_live=is_live)
    # Local code depends on its directory; edits do not change the identity of live code.
    launch, identity = code.launch, code.launch.code
    if launch.code_dir:
        identity = f"{launch.code if launch.bundled else 'live'} in {launch.code_dir}"
    sweep_digest = digest(spec.source, spec.keys.seed, identity)
    namesake = (Notice("program-ambiguous", code.namesake),) if code.namesake else ()
    warnings = (*spec.warnings, *namesake, *_check_options(spec, code))
    return Submission(spec=spec, file=file, code=code, digest=sweep_digest, warnings=warnings)
