"""Finds the code that a sweep file names, and what it is: the launch record before it is signed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hpq import __version__, code
from hpq.errors import UserError
from hpq.hyperparams import SHIPPED
from hpq.sweep import Launch
from producer.sweepfile.spec import SweepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A launch record and, where it is local code, the manifest that its digest stands for."""

    launch: Launch
    files: dict[str, str] | None = None


def find(spec: SweepSpec, file: Path, cwd: Path, code_dir: str | None = None) -> Code:
    """The code that a sweep file means; `code_dir` is --code.

    A program is looked for as W&B does, from the working directory, and then beside the file.

    Raises:
        UserError: it is nowhere (names the places), or too large to fingerprint.
    """
    file = file.resolve()
    if spec.trainer in SHIPPED:
        return Code(launch=Launch(trainer=spec.trainer, code=f"hpq=={__version__}"))
    folder = _folder(spec, file, cwd, code_dir)
    if folder is None:
        return Code(launch=_launch(spec, _installed(spec.trainer, cwd, file.parent)))
    files = code.manifest(folder, spec.program, without=file)
    launch = _launch(spec, code.digest_of(files), str(folder.resolve()))
    return Code(launch=launch, files=files)


def _launch(spec: SweepSpec, digest: str, code_dir: str = "") -> Launch:
    return Launch(
        trainer=spec.trainer,
        program=spec.program,
        command=spec.command,
        code=digest,
        code_dir=code_dir,
        pass_env=spec.pass_env,
        resident=spec.resident,
    )


def _folder(spec: SweepSpec, file: Path, cwd: Path, code_dir: str | None) -> Path | None:
    """Where local code lies; None for an installed trainer."""
    named = code_dir if code_dir is not None else spec.code
    if named:
        folder = (cwd if code_dir is not None else file.parent) / Path(named).expanduser()
        if not folder.is_dir():
            raise UserError(f"code: {folder} is not a directory")
        _must_have(spec, [folder])
        return folder
    places = [cwd, file.parent]
    if spec.trainer:
        return next((p for p in places if _has_module(p, spec.trainer)), None)
    return _must_have(spec, places)


def _must_have(spec: SweepSpec, places: list[Path]) -> Path:
    for place in places:
        if spec.trainer and _has_module(place, spec.trainer):
            return place
        if spec.program and (place / spec.program).is_file():
            return place
        if spec.command and not spec.program:
            return place
    what = spec.program or spec.trainer
    looked = " nor in ".join(dict.fromkeys(str(p) for p in places))
    raise UserError(f"{what!r} is not in {looked}; name its directory with `code:` or --code")


def _has_module(folder: Path, trainer: str) -> bool:
    top = trainer.partition(":")[0].split(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _installed(trainer: str, *looked: Path) -> str:
    """The distribution and version of an installed trainer."""
    module = trainer.partition(":")[0]
    top = module.split(".")[0]
    if importlib.util.find_spec(top) is None:
        places = " nor in ".join(dict.fromkeys(str(p) for p in looked))
        raise UserError(f"trainer {trainer!r}: no module {top!r} in {places}, and none installed")
    names = metadata.packages_distributions().get(top, [])
    return "+".join(f"{name}=={metadata.version(name)}" for name in names) or f"module {top}"
