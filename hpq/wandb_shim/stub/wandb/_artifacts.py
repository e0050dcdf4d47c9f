"""`use_artifact`: find what this process, or a trial of a sweep, logged as an artifact."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from ._files import ABOUT, DESCRIBED, Artifact, logged, out, place
from ._transport import hpq, hpq_json, in_worker
from .errors import CommError, UsageError

ARTIFACTS = "artifacts/"  # the folder of artifacts among a trial's files


def find(wanted: str) -> Artifact:
    """Return an artifact by NAME, NAME:latest, NAME:v0 or NAME:ALIAS, or of another sweep: ID/NAME.

    W&B's ENTITY/PROJECT/NAME is read as NAME. Versions count from the first that was logged: by
    this process, or else by the trials of the sweep.

    Raises:
        CommError: hpq has no such artifact.
    """
    path, _, alias = wanted.rpartition("://")[2].partition(":")
    folder, _, name = path.rpartition("/")
    other, own = folder.rpartition("/")[2], os.environ.get("HPQ_SWEEP_ID", "")
    versions: list[Callable[[], Artifact]] = [partial(_same, one) for one in logged.get(name, ())]
    for sweep in (other, own):
        if sweep and not versions:
            versions = list(_of_sweep(sweep, name))
    if not versions:
        raise CommError(
            f"{wanted}: neither this process nor a trial of its sweep logged this artifact; hpq has"
            f" no W&B server. Log it in this script, name another sweep's as SWEEP/{name}:latest,"
            " or write `wandb: real` into the sweep file. A worker's trial finds what is kept on"
            " this machine; `hpq get` downloads the rest"
        )
    number: int | None = len(versions) - 1
    if re.fullmatch(r"v\d+", alias):
        number = int(alias[1:])
    elif alias not in ("", "latest"):
        named = (n for n in reversed(range(len(versions))) if alias in versions[n]().aliases)
        number = next(named, None)
    if number is None or number >= len(versions):
        last = f"v0 to v{len(versions) - 1}"
        raise CommError(f"{wanted}: hpq has {last} of {name}, and none is {alias}")
    artifact = versions[number]()
    artifact.version = f"v{number}"
    return artifact


def _same(artifact: Artifact) -> Artifact:
    return artifact


def _of_sweep(sweep: str, name: str) -> Iterator[Callable[[], Artifact]]:
    """Yield what reads each artifact of this name that trials of a sweep logged, the oldest first.

    A worker's trial cannot read Redis: it finds those in a store that is a directory, and those of
    trials without a store that ran on this machine.
    """
    inside = place("artifacts", name).relative_to(out()).as_posix()
    if in_worker():
        work, store = out().parents[1], Path(os.environ.get("HPQ_STORE") or os.devnull).expanduser()
        found = [
            *_own(work, f"{sweep}.*/out/{inside}{ABOUT}"),  # SWEEP.TRIAL.ATTEMPT
            *_own(store, f"*/{sweep}/*/*/artifacts/{inside}{ABOUT}"),  # PREFIX/SWEEP/TRIAL/ATTEMPT
        ]
        for _, about in sorted((stamp, about) for about in found if (stamp := _stamp(about))):
            yield partial(_kept, name, about)
        return
    try:
        trials = [one for one in hpq_json("results", sweep) if one["ended"]]
    except UsageError:  # of a W&B project, no sweep
        return
    for trial in sorted(trials, key=lambda one: one["ended"]):
        files = [file for file in trial["artifacts"] if file.startswith(f"{inside}/")]
        if files:
            yield partial(_stored, name, f"{sweep}/{trial['trial']}", inside, files)


def described(name: str) -> str:
    """Return the file, among a trial's, that describes an artifact of this name."""
    return f"{ARTIFACTS}{name}{ABOUT}"


def stored(trial: str, files: Iterable[str]) -> Iterator[Artifact]:
    """Yield the artifacts among the files of a trial, SWEEP/7, in the file store."""
    for about in sorted(one for one in files if one.startswith(ARTIFACTS) and one.endswith(ABOUT)):
        inside = about.removesuffix(ABOUT)
        own = [file for file in files if file.startswith(f"{inside}/")]
        yield _stored(inside.removeprefix(ARTIFACTS), trial, inside, own)


def _own(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the descriptions below a folder whose artifacts no link leads to.

    Another user of a store could have this trial read, by a link in it, files that are private.
    """
    top = root.resolve()
    for about in root.glob(pattern):
        files = Path(str(about)[: -len(ABOUT)])
        if all(one.resolve() == top / one.relative_to(root) for one in (about, files)):
            yield about


def _links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if os.path.islink(os.path.join(folder, name))]


def _kept(name: str, about: Path) -> Artifact:
    """Return an artifact among the files of a trial of this machine.

    Raises:
        CommError: the trial has replaced or removed it; so does a later copy of its files.
    """
    stamp, source = _stamp(about), str(about).removesuffix(ABOUT)
    again = CommError(f"the trial of {source} replaced or removed {name}; call use_artifact again")

    def fetch(folder: Path) -> None:
        try:
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=_links)
            if stamp is None or _stamp(about) != stamp:
                raise FileNotFoundError(about)
        except OSError as error:  # of shutil, too
            shutil.rmtree(folder, ignore_errors=True)
            raise again from error

    try:
        artifact = _read(name, about)
    except OSError as error:
        raise again from error
    artifact._fetch = fetch
    return artifact


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what differs between two files that had this path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _stored(name: str, trial: str, inside: str, files: list[str]) -> Artifact:
    """Return an artifact in the file store."""
    with tempfile.TemporaryDirectory() as temporary:
        about = Path(temporary, "about")
        hpq("get", trial, f"{inside}{ABOUT}", "--out", about)
        artifact = _read(name, about)

    def fetch(folder: Path) -> None:
        for file in files:
            hpq("get", trial, file, "--out", folder / file[len(inside) + 1 :])

    artifact._fetch = fetch
    return artifact


def _read(name: str, about: Path) -> Artifact:
    artifact, told = Artifact(name), json.loads(about.read_text("utf-8"))
    # Any client of Redis may name the file: no other attribute, such as the folder, is taken.
    artifact.__dict__.update({key: told[key] for key in DESCRIBED if key in told})
    artifact.state = "COMMITTED"
    return artifact
