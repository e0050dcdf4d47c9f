"""Tell data in Redis that are not as hpq writes them from errors of the server that may pass."""

from __future__ import annotations

import re
from typing import Any

from redis.exceptions import ResponseError

from hpq.errors import DecodeError

DAMAGED = re.compile(r"WRONGTYPE|not an integer|not a valid float|[Ii]nvalid stream")
# Of a script, every other error than one of the server's own state.
_IN_SCRIPT = re.compile("user_script|Error running script")
_PASSES = re.compile(
    r"\b(OOM|READONLY|LOADING|NOPERM|NOAUTH|WRONGPASS|MISCONF|BUSY|NOREPLICAS|MASTERDOWN|CLUSTERDOWN"
    r"|TRYAGAIN|NOSCRIPT|UNKILLABLE|ACL|can't run this command|permission)"
)
_KEY = re.compile(r"(?!EVALSHA)\S+ (?:.*STREAMS )?(\S+)", re.DOTALL)
_SWEEP = re.compile(r":[st]:([A-Za-z0-9._-]+)")


def damage(error: Exception, key: str = "") -> str:
    """Return which data are not as hpq writes them, and the remedy; "" if the error may pass.

    `key` is that of the command; "": the error names it, or no one knows it.
    """
    text = str(error)
    if type(error) is not ResponseError:  # redis-py has classes for most that pass
        return ""
    if not DAMAGED.search(text) and (not _IN_SCRIPT.search(text) or _PASSES.search(text)):
        return ""
    # redis-py: `Command # 1 (GET KEY) of pipeline caused error: WHY`
    command, _, why = text.rpartition(" caused error: ")
    if not key and (found := _KEY.match(command.partition("(")[2].rpartition(")")[0])):
        key = found[1]
    if not key:  # a script
        return f"a key is not as hpq writes it: {why}; `hpq audit SWEEP` names it"
    sweep = _SWEEP.search(key)
    then = f"`hpq audit {sweep[1] if sweep else 'SWEEP'}` lists what is missing"
    return f"{key} is not as hpq writes it: {why}; delete it with redis-cli, then {then}"


def answered(key: str, answer: Any) -> Any:
    """Return the answer to a command on a key, of a pipeline that raises no errors.

    Raises:
        DecodeError: the key is not as hpq writes it.
        RedisError: the answer is another error.
    """
    if not isinstance(answer, Exception):
        return answer
    if why := damage(answer, key):
        raise DecodeError(why)
    raise answer
