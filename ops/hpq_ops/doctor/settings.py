"""Print the settings in use: `hpq doctor --settings`."""

from __future__ import annotations

import os
from itertools import zip_longest
from textwrap import wrap

from hpq.access import connection_record
from hpq.access.session import load_settings
from hpq.code.signing import fingerprint, verifying_key
from hpq.domain.trial import Json
from hpq.settings import ABOUT, Settings, describe, read, variable
from hpq_views.text.console import show_table, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import GAP, Column
from hpq_views.text.text import clean, width


def show_settings(output: Format) -> None:
    """Print the settings in use; hide secrets."""
    settings = load_settings()
    connection = connection_record.connection_of_url(settings.home, settings.redis_url)
    shown = {**describe(settings), **_key(settings)}
    if output.is_data:
        return show_data({**shown, "connection": connection.where if connection else None}, output)
    about = dict(ABOUT)
    if connection:
        about["redis_url"] = f"by hpq connect: {connection.where}"
    elif settings.redis_url and not read(os.environ).redis_url:
        about["redis_url"] = "by hpq join; `hpq leave` disconnects"
    names = {field: variable(field) for field in about if variable(field) in shown}
    values = {field: _text(shown[name]) for field, name in names.items()}
    taken = max(map(width, names.values())) + min(_VALUE, max(map(width, values.values())))
    room = max(_MEANING, stdout_info().columns - taken - 2 * GAP)
    rows = [
        [Span(name), Span(value), Span(part, Style.DIM)]
        for field in names
        for name, value, part in zip_longest(
            [names[field]],
            [values[field]],
            wrap(about[field], room, break_on_hyphens=False),
            fillvalue="",
        )
    ]
    show_table(_COLUMNS, rows)


_VALUE, _MEANING = 30, 30  # columns: of values at most, of meanings at least
_COLUMNS = (
    Column(title="setting", keep=100),
    Column(title="value", keep=90, least=10),
    Column(title="meaning", keep=50),
)


def _key(settings: Settings) -> dict[str, Json]:
    """Return the fingerprint of the code key: HPQ_CODE_KEY, else the key under HPQ_HOME."""
    key_print = fingerprint(verifying_key(settings))
    where = "" if settings.code_key else ", under HPQ_HOME"
    return {variable("code_key"): f"*** (key {key_print}{where})"} if key_print else {}


def _text(value: Json) -> str:
    if isinstance(value, list):
        return clean(" ".join(map(str, value)))
    return "" if value is None else clean(str(value))
