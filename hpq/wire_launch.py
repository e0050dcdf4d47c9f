"""The half of `wire` that belongs to the launch record: the text that is signed, and back."""

from __future__ import annotations

import json
from typing import Any

from hpq.fields import word
from hpq.sweep import Launch, Wandb


def encode_launch(launch: Launch) -> str:
    """The launch record as canonical JSON; the signature covers this text."""
    data: dict[str, Any] = {
        "trainer": launch.trainer,
        "program": launch.program,
        "command": list(launch.command),
        "code": launch.code,
        "code_dir": launch.code_dir,
        "pass_env": list(launch.pass_env),
        "resident": launch.resident,
    }
    if launch.wandb is not None:  # what an older hpq has signed does not have it
        data["wandb"] = launch.wandb
    if launch.bundled:
        data["bundled"] = True
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def decode_launch(text: str) -> Launch:
    """The launch record from its JSON.

    Fields of a newer version are left out; a signature that covers them does not fit any more.

    Raises:
        ValueError: the text is not one (also for a wrong type).
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    for field in ("command", "pass_env"):
        data[field] = names(data.get(field, []), field)
    for field in ("trainer", "program", "code", "code_dir"):
        if not isinstance(data.get(field, ""), str):
            raise ValueError(f"{field} is no text")
    data["bundled"] = data.get("bundled") is True
    told = data.get("wandb")
    data["wandb"] = word(Wandb, told) if isinstance(told, str) else None
    return Launch(**{name: data[name] for name in Launch.__slots__ if name in data})


def names(data: Any, what: str = "it") -> tuple[str, ...]:
    """A list of texts as it is read from JSON (ValueError where it is none)."""
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"{what} is no list of texts")
    return tuple(data)
