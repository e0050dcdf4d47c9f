"""Which parameter separates the trials that ran out of memory from those that ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpq.domain.trial import FailureKind, TrialState, TrialView, param_value
from hpq_producer.terminal.text import clean, number

_Range = tuple[float, float]


@dataclass(slots=True)
class MemoryNeeds:
    """Accumulates trials one by one, and keeps the range of each number only."""

    varying: tuple[str, ...]
    _ended: dict[str, _Range] = field(default_factory=dict)  # of finished and pruned trials
    _failed: dict[str, _Range] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)  # of failed trials that have the number
    _failures: int = 0
    _peak: float = 0.0  # GB that a failed trial was seen to use of its GPU
    _sizes: set[float] = field(default_factory=set)  # GB of the GPUs of failed trials; 0: unknown

    def add(self, trial: TrialView) -> None:
        """Add a trial that ended."""
        failure, ranges = trial.failure, self._ended
        if trial.state is TrialState.FAILED:
            if failure is None or failure.kind is not FailureKind.OUT_OF_MEMORY:
                return
            ranges = self._failed
            self._failures += 1
            peak, size = (trial.usage.get(f"gpu.{name}_gb", 0.0) for name in ("memory", "size"))
            self._peak = max(self._peak, peak)
            self._sizes.add(size if peak > size / 2 else 0.0)  # else it lacked the host's
        for name in self.varying:
            value = param_value(trial.params, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                low, high = ranges.get(name, (value, value))
                ranges[name] = min(low, value), max(high, value)
                self._counts[name] = self._counts.get(name, 0) + (ranges is self._failed)

    @property
    def cause(self) -> str:
        """`batch_size ≥ 512 needs more than 24 GB`, else the peak; "" if neither is known.

        One number separates the trials that failed: two that do so may both be chance.
        """
        least = min(self._sizes, default=0.0)  # each of the others failed with more
        size = f"{least:.3g} GB" if least else "was free"
        found = []
        for name, (low, high) in self._failed.items():
            ended = self._ended.get(name)
            if ended is None or self._counts[name] < self._failures:
                continue
            if low > ended[1]:
                found.append(f"{clean(name)} ≥ {number(low)}")
            elif high < ended[0]:
                found.append(f"{clean(name)} ≤ {number(high)}")
        if len(found) == 1:
            return f"{found[0]} needs more than {size}"
        return f"seen to use at most {self._peak:.3g} GB of a GPU" if self._peak else ""
