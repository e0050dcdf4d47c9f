"""A checked sweep file with its code, digest and search settings, each computed once.

`enqueue`, `run` and `plan` make one PreparedSweep and pass it on. Before the first write they check
what it needs on this machine: a sampler, a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from hpq.code.command import interpreter, printed_by, started, starts_program, variables_of
from hpq.domain.identity import digest
from hpq.domain.sweep import Goal, Impute, ObjectiveValue, SweepView
from hpq.domain.trial import Json
from hpq.errors import HpqError, UserError
from hpq.gpus import gpu_names
from hpq.notice import Notice
from hpq.search.samplers import Sampler, Search, is_installed, missing, unaided
from hpq.yamlfile.problems import KeyPath, Problems
from hpq_producer.enqueue.code_discovery import DiscoveredCode, find_code
from hpq_producer.scaffold.script import misread_values, rejections
from hpq_producer.scaffold.script_contents import Source
from hpq_producer.sweepfile.parameters import ENTRY, listed_sets
from hpq_producer.sweepfile.spec import LIST, SweepSpec, parameter_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSweep:
    """A checked sweep file and the code that it runs."""

    spec: SweepSpec
    file: Path
    code: DiscoveredCode
    digest: str  # identifies the sweep: file, seed and code
    warnings: tuple[Notice, ...] = ()  # to show before the sweep runs


_AS_FLAGS = "${args_no_boolean_flags}"
_WAY_OUT = "; a command that names its options, such as --{0}=${{{0}}}, is not checked"
_PASSES_OPTIONS = frozenset({"${args}", "${args_no_equals}", _AS_FLAGS})
_DRAWN = 30  # sets whose values are checked, beside all that the file lists
_MOST_VALUES = 500  # of a parameter


@dataclass(frozen=True, slots=True)
class _Passed:
    """A parameter that trials get: its place, and values with theirs: all that the file lists.

    A value that is drawn, or derived, has the place of the parameter.
    """

    place: KeyPath
    values: list[tuple[KeyPath, Json]] = field(default_factory=list)


_FIRST_ERROR = """
import ast
try:
    with open({0!r}, "rb") as file:
        ast.parse(file.read(), {0!r})
except SyntaxError as error:
    print("%s:%s: %s" % (error.lineno or 1, error.offset or 1, error.msg))
"""


def _unparsed(
    script: Path, command: tuple[str, ...], error: UserError, trains_here: bool
) -> tuple[Notice, ...]:
    """Return the warning of a script that the Python of hpq cannot parse.

    The Python of trials may be another one. That of this machine decides; it need not be that of a
    worker elsewhere.

    Raises:
        UserError: trials run on this machine, and its Python cannot parse the script either.
    """
    from hpq.access.session import load_settings  # noqa: PLC0415  most files need no server

    try:
        starter, settings = started(command)[0], load_settings()
        python = interpreter(os.environ, settings.python)
        if starter != "${interpreter}":
            python = shutil.which(starter) or ""
        place = printed_by(python, _FIRST_ERROR.format(str(script)), os.environ).strip()
    except (HpqError, OSError, subprocess.SubprocessError):
        return (error.notice,)
    if not place:
        return ()
    text = f"{script}:{place}: {python} cannot parse this line; correct it"
    if trains_here or not settings.redis_url:
        raise UserError(text, code="script-invalid")
    return (Notice("script-invalid", text),)


def _unset_variables(spec: SweepSpec) -> Iterator[Notice]:
    """Yield a warning for each variable of the command that is not set here."""
    for word in spec.command:
        for name in variables_of(word):
            if name not in os.environ:
                text = f"command: {name} is not set here; export it where the workers start, or"
                yield Notice("unknown-macro", f"{text} trials get the word {name}")


def _check_program(spec: SweepSpec, code: DiscoveredCode, trains_here: bool) -> tuple[Notice, ...]:
    """Return warnings of a program that is not Python, or may reject or misread parameters.

    Raises:
        SweepFileError: its argparse surely rejects some, or surely reads one value as another.
        UserError: the Python of this machine, which runs it, cannot parse it.
    """
    is_started = starts_program(spec.command, spec.keys.program)
    name = started(spec.command)[1] if is_started else "${program}"
    script = code.folder / (spec.keys.program if name == "${program}" else name)
    if script.suffix != ".py" or not script.is_file():
        return ()
    try:
        source = Source.read(script)
    except UserError as error:
        return _unparsed(script, spec.command, error, trains_here)
    macros = _PASSES_OPTIONS & set(spec.command)
    if code.files is None or len(macros) != 1 or not is_started:
        return ()
    (macro,) = macros
    out, passed = Problems(spec.source_map), _passed(spec)
    for name, why, is_sure in list(rejections(source, passed, flags_alone=macro == _AS_FLAGS)):
        place = passed.pop(name).place  # its values need no check
        why += _WAY_OUT.format(name) if is_sure else ""
        _report(out, place, why, is_error=is_sure)
    values = {name: [value for _, value in one.values] for name, one in passed.items()}
    misread, is_sure = misread_values(source, values, macro)
    named: set[str] = set()
    for one in misread:
        place, (path, _) = passed[one.name].place, passed[one.name].values[one.place]
        if path != place or one.name not in named:  # one example of a range is enough
            why = f"{source.path.name}: {one.why}"
            _report(out, path, why, is_error=is_sure and one.is_wrong)
        named.add(one.name)
    out.raise_errors()
    return out.sorted_warnings()


def _report(out: Problems, path: KeyPath, why: str, *, is_error: bool) -> None:
    if is_error:
        out.add(path, why, code="option-rejected")
    else:
        out.warn(path, why, code="option-rejected")


def _passed(spec: SweepSpec) -> dict[str, _Passed]:
    """Return the parameters that trials get, by name."""
    found: dict[str, _Passed] = {}
    if spec.space is None:
        for index, params in enumerate(listed_sets(spec.source[LIST])):
            for name, value in params.items():
                path = (index, ENTRY, name)
                found.setdefault(name, _Passed(path)).values.append((path, value))
        return found
    leaves = spec.space.parameters
    found = {names[0]: _Passed(("parameters", names[0])) for names in leaves}
    found |= {name: _Passed(("derive", name)) for name, _ in spec.space.derive}
    for names, leaf in leaves.items():
        if len(names) == 1 and leaf.outcomes:
            known = islice(leaf.known(), _MOST_VALUES)
            place = found[names[0]].place
            found[names[0]].values.extend(((*place, *key), value) for key, value in known)
    for params in islice(parameter_sets(spec), _DRAWN):
        for name, value in params.items():
            found[name].values.append((found[name].place, value))
    return found


def prepare(
    spec: SweepSpec,
    file: Path,
    code_dir: str | None = None,
    *,
    is_live: bool = False,
    trains_here: bool = False,
) -> PreparedSweep:
    """Find the code of a sweep file, and compute the sweep's digest.

    `code_dir` is --code, `is_live` --live. `trains_here`: workers of this machine run it.

    Raises:
        UserError: the code is missing, too large to be sent, or not Python.
        SweepFileError: the script's argparse rejects a parameter.
    """
    code = find_code(spec, file, Path.cwd(), code_dir, is_live=is_live)
    # Local code depends on its directory; edits do not change the identity of live code.
    launch, identity = code.launch, code.launch.code
    if launch.code_dir:
        identity = f"{launch.code if launch.bundled else 'live'} in {launch.code_dir}"
    sweep_digest = digest(spec.source, spec.keys.seed, identity)
    namesake = (Notice("program-ambiguous", code.namesake),) if code.namesake else ()
    found = (*namesake, *_unset_variables(spec), *_check_program(spec, code, trains_here))
    warnings = (*spec.warnings, *found)
    return PreparedSweep(spec=spec, file=file, code=code, digest=sweep_digest, warnings=warnings)


def search_of(prepared: PreparedSweep) -> Search | None:
    """Return the space with the search settings; None for a list of parameter sets."""
    spec = prepared.spec
    if spec.space is None:
        return None
    metric = spec.metric
    return Search(
        space=spec.space,
        sampler=_sampler_of(spec),
        seed=spec.keys.seed,
        replicates=spec.keys.replicates,
        maximize=metric is not None and metric.goal is Goal.MAXIMIZE,
        metric=metric.name if metric else "",
        take=(spec.keys.metric and spec.keys.metric.value) or ObjectiveValue.BEST,
        impute=metric.impute if metric else Impute.WORST,
        impute_while_running=metric.impute_while_running if metric else None,
        maximizes=tuple(one.goal is Goal.MAXIMIZE for one in spec.objectives),
        constraints=len(spec.constraints),
    )


def _sampler_of(spec: SweepSpec) -> Sampler:
    """Return the sampler of a sweep file."""
    return spec.keys.sampler if spec.method == "bayes" else Sampler.RANDOM


def with_late_search(
    sweep: SweepView, prepared: PreparedSweep, search: Search, older: int
) -> SweepView:
    """Return the sweep with its search settings; `older` parameter sets have copied results.

    These do not count against run_cap, which limits the trials that run.
    """
    spec, requested = prepared.spec, prepared.spec.trials
    size = spec.uncapped_trials
    cap = 0 if requested is None else requested + older * spec.keys.replicates
    return replace(
        sweep,
        sampler=search.sampler,
        run_cap=cap if size is None else min(cap or size, size),
    )


def missing_samplers(prepared: PreparedSweep) -> tuple[str | None, str | None]:
    """Return what to install so that the sampler runs here, and so that it works at its best."""
    if not prepared.spec.is_late:
        return None, None
    sampler = _sampler_of(prepared.spec)
    return missing(sampler, is_installed), unaided(sampler, is_installed)


def without_gpu(prepared: PreparedSweep) -> str | None:
    """Return a warning if the article's full-size trainer would run without a GPU, else None."""
    names = prepared.spec.source.get("parameters")
    small = isinstance(names, dict) and {"width", "train_images"} & names.keys()
    if prepared.spec.keys.trainer != "cifar10" or small or gpu_names():
        return None
    return (
        "no GPU found: on a CPU, a trial of all images at full width takes hours; use the small"
        " sweep configs/cifar10-16-small.yaml"
    )
