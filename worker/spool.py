"""Results that Redis could not take yet, as files under HPQ_HOME, so that a crash loses none.

A file is written whole under another name and then moved; committing one twice is harmless, since
the store takes an attempt's end once.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpq.fields import known, word
from hpq.outcome import Committed, Outcome
from hpq.store import Store
from hpq.trial import Artifacts, Claim, Failure, FailureKind, TrialId, TrialState

log = logging.getLogger("hpq.spool")


class Spool:
    """The results of this machine's workers that wait for Redis."""

    def __init__(self, home: Path, prefix: str) -> None:
        self._folder = home / "spool" / prefix
        self._left: set[Path] = set()  # said to be a newer worker's
        self._held: dict[Path, int] = {}  # descriptors: the lock says that its worker sees to it

    def _path(self, claim: Claim) -> Path:
        return self._folder / f"{claim.trial.sweep}.{claim.trial.number}.{claim.token}.json"

    def put(self, claim: Claim, outcome: Outcome, retries: int) -> None:
        """Keep one result, whole or not at all.

        Raises:
            OSError: the disk does not take it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(claim)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.write_text(json.dumps(_encode(claim, outcome, retries)), "utf-8")
            held = os.open(draft, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)  # its reports go first, and this process has them
            self._let_go(path)
            self._held[path] = held
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _let_go(self, path: Path) -> None:
        if path in self._held:
            os.close(self._held.pop(path))

    def close(self) -> None:
        """Leave what is kept to the other workers of this machine, as the end of a process does."""
        for path in list(self._held):
            self._let_go(path)

    def settle(self, claim: Claim, answer: Committed) -> None:
        """Forget one result that Redis has answered for; one that it does not know stays on disk.

        Its data may come back, from a backup or with the right server: `flush` tries again.
        """
        path = self._path(claim)
        self._let_go(path)
        aside = path.with_suffix(".unknown")
        if answer is not Committed.UNKNOWN:
            path.unlink(missing_ok=True)
            aside.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):  # another worker of this machine was quicker
            path.replace(aside)
            log.warning("Redis does not know %s; its result is kept as %s", claim.trial, aside)

    def flush(self, store: Store) -> int:
        """Commit what is kept, oldest first; answers how many results Redis has answered for.

        Raises:
            redis.RedisError: Redis is still away; what is left stays.
        """
        done = 0
        kept = [*self._folder.glob("*.json"), *self._folder.glob("*.unknown")]
        for path in sorted(kept, key=_age):
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    claim, outcome, retries = _decode(json.load(file))
            except OSError:  # gone or held: another worker of this machine sees to it
                continue
            except _Newer as error:
                if path not in self._left:
                    log.warning("%s: left for a newer worker: %s", path, error)
                self._left.add(path)
                continue
            except (ValueError, KeyError, TypeError) as error:
                log.error("%s: not a result that can be read: %s; set aside", path, error)
                path.replace(path.with_suffix(".bad"))
                continue
            answer = store.commit(claim, outcome, retries)
            self.settle(claim, answer)
            if answer is not Committed.UNKNOWN:
                log.info("spooled result of %s: %s", claim.trial, answer)
                done += 1
        return done


class _Newer(Exception):
    """The file says what only a newer version can commit."""


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _encode(claim: Claim, outcome: Outcome, retries: int) -> dict[str, object]:
    return {
        "sweep": claim.trial.sweep,
        "number": claim.trial.number,
        "attempt": claim.attempt,
        "nonce": claim.nonce,
        "retries": retries,
        "outcome": asdict(outcome),
    }


def _decode(data: dict[str, object]) -> tuple[Claim, Outcome, int]:
    raw = data["outcome"]
    if not isinstance(raw, dict):
        raise ValueError("outcome is not a mapping")
    state = word(TrialState, str(raw["state"]))
    if state is None:
        raise _Newer(f"it knows no state {raw['state']!r}")
    left = raw.get("artifacts")  # an older worker's file has none
    outcome = Outcome(
        state=state,
        objective=raw["objective"],
        best=raw.get("best"),
        step=int(raw["step"]),
        failure=_failure(raw["failure"]),
        ran_ms=raw.get("ran_ms"),
        artifacts=None if left is None else known(Artifacts, left),
    )
    trial = TrialId(sweep=str(data["sweep"]), number=int(str(data["number"])))
    nonce = str(data.get("nonce", ""))
    claim = Claim(trial=trial, attempt=int(str(data["attempt"])), params={}, nonce=nonce)
    return claim, outcome, int(str(data["retries"]))


def _failure(told: Mapping[str, Any] | None) -> Failure | None:
    if told is None:
        return None
    kind = word(FailureKind, str(told["kind"]))
    if kind is not None:
        return known(Failure, {**told, "kind": kind})
    message = f"{told['kind']}: {told['message']}"  # as readers show a kind that they do not know
    return known(Failure, {**told, "kind": FailureKind.USER_ERROR, "message": message})
