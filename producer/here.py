"""The settings of a command: the environment, and the connection that `hpq connect` keeps."""

from __future__ import annotations

import os

from hpq.settings import Settings, read
from producer.cluster import tunnel


def settings_here() -> Settings:
    """What is in force for this command.

    Raises:
        SettingsError: as `hpq.settings.read`.
        OutOfReach: the connection in the background was cut, or that of this shell.
    """
    told = read(os.environ)
    if told.redis_url:
        tunnel.see_shell(os.environ, told.home, told.redis_url)
        return told
    seen = tunnel.overlay(os.environ, told.home)
    return told if seen is os.environ else read(seen)
