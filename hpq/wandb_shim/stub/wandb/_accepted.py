"""Methods of a run that scripts call and that mean nothing here."""

from __future__ import annotations

from typing import Any

from ._say import say

_DROPPED = "it is accepted and dropped"


class Accepted:
    """Takes the calls."""

    url: str
    project: str

    def watch(self, *args: Any, **kwargs: Any) -> None:
        say(f"watch: gradients and graphs are not kept; {_DROPPED}")

    def unwatch(self, *args: Any, **kwargs: Any) -> None:
        """Nothing was watched."""

    def alert(self, title: str = "", text: str = "", *args: Any, **kwargs: Any) -> None:
        say(f"alert: {title}: {text}")

    def log_code(self, *args: Any, **kwargs: Any) -> None:
        """hpq keeps the code with the sweep: `hpq show --code`."""

    def mark_preempting(self) -> None:
        """hpq gives a stopped worker's trial back by itself."""

    def link_artifact(self, *args: Any, **kwargs: Any) -> None:
        say(f"link_artifact: there is no registry; {_DROPPED}")

    link_model = link_artifact

    def get_url(self) -> str:
        return self.url

    get_sweep_url = get_project_url = get_url

    def project_name(self) -> str:
        return str(self.project)

    def status(self) -> None:
        return None

    def _label(self, *args: Any, **kwargs: Any) -> None:
        """For statistics of W&B's."""

    def display(self, *args: Any, **kwargs: Any) -> bool:
        return False

    def to_html(self, *args: Any, **kwargs: Any) -> str:
        return f"<p>{self.url}</p>"
