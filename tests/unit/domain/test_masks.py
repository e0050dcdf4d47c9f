"""Masks, and which variables count as secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq.settings import read
from hpq_worker.process.secrets import Mask, secret_values

SECRETS = [b"hunter2-long", b"hunter2", b"longest-one", b"ababac", b"\xff\x00secret"]


def masked(mask: Mask, pieces: list[bytes]) -> bytes:
    return b"".join([mask.feed(piece) for piece in pieces]) + mask.flush()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_value_is_hidden_wherever_it_is_split(secret: bytes) -> None:
    text = b"x " + secret + b" y"
    for at in range(len(text)):
        assert masked(Mask(SECRETS), [text[:at], text[at:]]) == b"x *** y"


@given(st.lists(st.sampled_from([*SECRETS, b"a", b"hunter", b"ab", b"\n", b"2-", b"long"])),
       st.lists(st.integers(0, 60)))  # fmt: skip
def test_no_value_passes_however_it_comes(parts: list[bytes], cuts: list[int]) -> None:
    text = b"".join(parts)
    at = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(at)]
    shown = masked(Mask(SECRETS), pieces)
    assert not any(secret in shown for secret in SECRETS)
    assert shown == masked(Mask(SECRETS), [text])


def test_what_holds_no_secret_passes_unchanged_and_at_once() -> None:
    mask = Mask(SECRETS)
    assert mask.feed(b"epoch 1: loss=0.5\n") == b"epoch 1: loss=0.5\n"
    assert Mask([]).feed(b"anything") == b"anything" and Mask([b"ab"]).feed(b"ab") == b"ab"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\udcff\ud800", "\udcff\ud800"),
        ("é hunter2 é", "é *** é"),
        ("KeyError: ababac", "KeyError: ***"),
    ],
)
def test_a_text_is_masked_whatever_is_in_it(text: str, shown: str) -> None:
    assert Mask(SECRETS).text(text) == shown


def test_password_code_key_and_telling_names_are_secrets(tmp_path) -> None:
    path = tmp_path / "password"
    path.write_text("from-a-file\n", "utf-8")
    env = {"WANDB_API_KEY": "k-123456", "HF_TOKEN": "t-123456", "TOKENIZERS_PARALLELISM": "false",
           "KEYBOARD": "qwerty", "SSH_KEY": str(path), "PATH": "/bin"}  # fmt: skip
    url = {"HPQ_REDIS_URL": "redis://h", "HPQ_REDIS_PASSWORD_FILE": str(path)}
    got = secret_values(
        read({**url, "HPQ_CODE_KEY": "code-key of sixteen"}), env, b"code-key of sixteen"
    )
    assert got == [b"from-a-file", b"code-key of sixteen", b"k-123456", b"t-123456"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_what_is_taken_is_gone_from_proc() -> None:
    script = """
import os
from pathlib import Path
from hpq_worker.process.secrets import hide
before = Path("/proc/self/environ").read_bytes()
taken = hide(in_pod=False)
after = Path("/proc/self/environ").read_bytes()
assert b"v3ry" in before and b"v3ry" not in after and b"HOME=/h" in after, after
assert taken == {"HPQ_CODE_KEY": "v3ry", "HPQ_REDIS_URL": "redis://:v3ry@h"}
assert "HPQ_CODE_KEY" not in os.environ
"""
    env = {"PATH": os.environ["PATH"], "HOME": "/h", "PYTHONPATH": ":".join(sys.path),
           "HPQ_CODE_KEY": "v3ry", "HPQ_REDIS_URL": "redis://:v3ry@h", "OTHER": "1"}  # fmt: skip
    subprocess.run([sys.executable, "-c", script], env=env, check=True)
