"""Where code lies: what tells one train.py from another of the same name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpq.sweep import Launch, Sweep
from hpq.trial import Json

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCP = re.compile(r"(?:[^@/]+@)?([^/:]+):(?!/?/)(.+)")  # git@host:path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directory of a sweep's code; `remote` and `below` are git's, where it has a remote."""

    folder: str
    host: str
    owner: str
    remote: str = ""
    below: str = ""  # the directory as the repository's root has it

    def is_that_of(self, other: Place) -> bool:
        """True for the same directory, or the same one of two checkouts of one repository.

        /app in two people's containers is not the same one.
        """
        if self.remote and other.remote:
            return (self.remote, self.below) == (other.remote, other.below)
        if self.folder != other.folder:
            return False
        return not self.folder or self.host == other.host or self.owner == other.owner


def place_of(launch: Launch, origin: Mapping[str, Json], owner: str) -> Place:
    """Where the code of a launch lies, by what was noted of its origin."""
    git, host = origin.get("git"), origin.get("host")
    folder = launch.code_dir or str(origin.get("folder") or "")  # of code that was sent
    facts = git if isinstance(git, dict) and folder else {}
    return Place(
        folder=folder,
        host=str(host or ""),
        owner=owner,
        remote=str(facts.get("remote") or ""),
        below=str(facts.get("below") or ""),
    )


def place_of_sweep(sweep: Sweep) -> Place:
    """As `place_of`."""
    return place_of(sweep.launch, sweep.provenance, sweep.owner)


def remote_name(url: str) -> str:
    """A remote as host/path, whichever way it is reached; without a user or a password."""
    url = url.strip()
    if scheme := _SCHEME.match(url):
        host, slash, path = url[scheme.end() :].partition("/")
        url = re.sub(r":\d+\Z", "", host.rpartition("@")[2]).lower() + slash + path
        url = re.split(r"[?#]", url)[0]
    elif found := _SCP.fullmatch(url):
        url = f"{found[1].lower()}/{found[2]}"
    elif not url.startswith("/"):
        return ""  # relative to where it was cloned: no name
    return url.rstrip("/").removesuffix(".git")
