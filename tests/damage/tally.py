"""What became of each damage, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

RIGHT, REFUSED, WRONG, CRASH = "right rows", "error", "WRONG ROWS", "CRASH"
REPAIRED, REPORTED, LEFT = "repaired", "reported", "LEFT"
SHOWN = (RIGHT, REFUSED, WRONG, CRASH)
ENDS = (REPAIRED, REPORTED, LEFT)
BAD = (WRONG, CRASH, LEFT)


@dataclass(slots=True)
class Tally:
    """Counts of damages by kind of file, way of damage, what readers showed, and how it ended."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    stories: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    damages: int = 0

    def add(self, kind: str, way: str, shown: str, end: str, story: str = "") -> None:
        """Count one damage."""
        self.damages += 1
        self.counts[kind, way, shown] += 1
        self.counts[kind, way, end] += 1
        if shown == REFUSED:
            self.refusals.append(f"{kind}, {way}: {story}")
        if shown in BAD or end in BAD:
            self.stories.append(f"{kind}, {way}: {shown}, {end}: {story}")

    def trouble(self, story: str) -> None:
        """Note something bad that belongs to no single damage."""
        self.stories.append(story)

    @property
    def is_clean(self) -> bool:
        """Whether no reader showed a wrong row, nothing crashed, and nothing was left unrepaired in silence."""
        return not self.stories

    def table(self) -> str:
        """Return the counts as text, a line for each kind of file and way of damage."""
        heads = (*SHOWN, *ENDS)
        lines = [f"{'file':<14}{'damage':<11}{'count':>7}" + "".join(f"{head:>12}" for head in heads)]
        pairs = sorted({(kind, way) for kind, way, _ in self.counts})
        for kind, way in pairs:
            numbers = [self.counts[kind, way, head] for head in heads]
            lines.append(
                f"{kind:<14}{way:<11}{sum(numbers[: len(SHOWN)]):>7}" + "".join(f"{each:>12}" for each in numbers)
            )
        totals = [sum(n for (_, _, what), n in self.counts.items() if what == head) for head in heads]
        lines.append(f"{'all':<25}{self.damages:>7}" + "".join(f"{each:>12}" for each in totals))
        return "\n".join(lines)
