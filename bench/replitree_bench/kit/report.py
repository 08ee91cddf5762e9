"""From rounds to a report: medians, and the ratio of ours to theirs, key by key."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Measured = dict[str, float]
"""What one system reached in one round, by key."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a benchmark.

    Attributes
    ----------
    name
        Of the benchmark.
    ours, peer
        Medians over the rounds, by key; the peer's may be empty.
    rounds
        How many.
    peer_name
        Who the peer is, with its version.
    notes
        What has to be known with the figures, for people.
    histogram
        How many of our latencies, over all rounds, are at most so many milliseconds, and above the bound before; may be empty.
    """

    name: str
    ours: Measured
    peer: Measured
    rounds: int
    peer_name: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    histogram: Mapping[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> Measured:
        """Ours divided by theirs, for the keys that both have."""
        return {key: round(self.ours[key] / value, 3) for key, value in self.peer.items() if value and key in self.ours}

    def as_json(self) -> dict[str, Any]:
        """Return the report as the command prints it."""
        return {
            "name": self.name,
            "ours": self.ours,
            "peer": self.peer,
            "ratio": self.ratio,
            "rounds": self.rounds,
            "peer_name": self.peer_name,
            "notes": dict(self.notes),
            "histogram": dict(self.histogram),
        }


def medians(rounds: Sequence[Mapping[str, float]]) -> Measured:
    """Return the median of every key.

    >>> medians([{"x": 1.0}, {"x": 5.0}, {"x": 2.0}])
    {'x': 2.0}
    """
    keys = dict.fromkeys(key for measured in rounds for key in measured)
    return {key: _rounded(statistics.median(m[key] for m in rounds if key in m)) for key in keys}


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    assert ordered
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered)) - 1))]


def _rounded(value: float) -> float:
    """Keep four significant digits: more would promise too much."""
    return float(f"{value:.4g}") if value < 10_000 else float(round(value))
