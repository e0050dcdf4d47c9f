"""`hpq config`."""

from __future__ import annotations

import os
from contextlib import suppress

from hpq.code.signing import fingerprint, key_of
from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq.settings import ABOUT, Settings, describe, read, variable
from hpq_producer import connection_record
from hpq_producer.commands.common_flags import Output
from hpq_producer.session import load_settings
from hpq_producer.terminal.console import show_table
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.style import Span, Style
from hpq_producer.terminal.tables import Column
from hpq_producer.terminal.text import clean


def config(output: Output = Format.TABLE) -> None:
    """Print the settings in use; hide secrets.

    Example: hpq config -o yaml
    """
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
    rows = [
        [Span(variable(field)), Span(_text(shown[variable(field)])), Span(what, Style.DIM)]
        for field, what in about.items()
        if variable(field) in shown
    ]
    show_table(_COLUMNS, rows)


_COLUMNS = (
    Column(title="setting", keep=100),
    Column(title="value", keep=90, least=10),
    Column(title="meaning", keep=50, least=20),
)


def _key(settings: Settings) -> dict[str, Json]:
    """Return the fingerprint of the code key: HPQ_CODE_KEY, else the key under HPQ_HOME."""
    with suppress(UserError):  # `hpq doctor` reports it
        if mark := fingerprint(key_of(settings, make=False)):
            where = "" if settings.code_key else ", under HPQ_HOME"
            return {variable("code_key"): f"*** (key {mark}{where})"}
    return {}


def _text(value: Json) -> str:
    if isinstance(value, list):
        return clean(" ".join(map(str, value)))
    return "" if value is None else clean(str(value))
