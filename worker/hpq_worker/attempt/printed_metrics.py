"""Read metrics from the lines that a program prints."""

from __future__ import annotations

from collections.abc import Mapping

from hpq.domain.metric_check import metric_in_text, metrics_of_line
from hpq.domain.sweep import Metric
from hpq_worker.runner import failures


class PrintedMetrics:
    """Finds metrics in the lines that a program prints.

    A line of nothing but `name=number` reports each one, except parameters. Inside other text, the
    last `name=number` or `name: number` of a line reports the sweep's metric, until a line of
    nothing else does.
    """

    def __init__(self, metric: Metric | None, params: Mapping[str, object]) -> None:
        self._metric = metric.name if metric and metric.name not in params else ""
        self._params, self._reads_text = params, True

    def parse(self, line: str) -> dict[str, float]:
        """Return the values that a line reports; {} without one, or of a rank above 0.

        A near miss of the sweep's metric, such as Val-Loss, is returned under its own name.
        """
        rank, line = failures.split_rank(line)
        if rank:
            return {}
        line = line.rstrip("\r").rpartition("\r")[2]  # what a terminal shows of a progress bar
        found = metrics_of_line(line)
        if self._metric in found:
            self._reads_text = False
        elif self._metric and (said := metric_in_text(self._metric, line)):
            is_other = said[0] != self._metric
            if said[0] not in found:
                found = dict([said]) if is_other or self._reads_text else {}
        return {name: value for name, value in found.items() if name not in self._params}
