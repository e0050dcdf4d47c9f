"""Write parameters as YAML. Apart from output.py, since PyYAML is slow to import."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")


class _Dumper(yaml.SafeDumper):
    """Quote every text that some YAML version reads as another type, such as 1e-3."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.match(text) else "'" if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any, *, sort_keys: bool = False, is_short: bool = False) -> str:
    """Return YAML that YAML 1.1 and 1.2 read alike; if short, the innermost values in one line."""
    flow = None if is_short else False
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=sort_keys, width=10**9, default_flow_style=flow
    )
