"""Read metrics from the lines that a program prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpq.domain.metric_check import NUMBER, metric_in_text
from hpq.domain.sweep import Metric
from hpq_worker.runner import failures

_PRINTED = re.compile(
    rf"\s*(?P<name>[A-Za-z_][A-Za-z0-9_./ -]{{0,63}}?)\s*=\s*(?P<value>{NUMBER})\s*\Z",
    re.IGNORECASE,
)


class PrintedMetrics:
    """Finds metrics in the lines that a program prints.

    A whole line `name=number` reports any metric but a parameter. Inside other text, the last
    `name=number` or `name: number` of a line reports the sweep's metric, until a whole line does.
    """

    def __init__(self, metric: Metric | None, params: Mapping[str, object]) -> None:
        self._metric = metric.name if metric and metric.name not in params else ""
        self._params, self._reads_text = params, True

    def parse(self, line: str) -> tuple[str, float] | None:
        """Return the name and value that a line reports; None without one, or of a rank above 0.

        A near miss of the sweep's metric, such as Val-Loss, is returned under its own name.
        """
        rank, line = failures.split_rank(line)
        if rank:
            return None
        line = line.rstrip("\r").rpartition("\r")[2]  # what a terminal shows of a progress bar
        found = _PRINTED.match(line)
        if found is not None and found["name"] == self._metric:
            self._reads_text = False
        elif self._metric and (said := metric_in_text(self._metric, line)):
            is_other = said[0] != self._metric
            return said if said[0] not in self._params and (is_other or self._reads_text) else None
        if found is None or found["name"] in self._params:
            return None
        return found["name"], float(found["value"])
