"""Effects of consumers of the change feed."""

from __future__ import annotations

from replitree.protocol.program import tagger
from replitree_verify.effects.row import EVERYTHING, MEMORY, Row
from replitree_verify.outcomes import consumers

# fmt: off
ROWS = (
    Row(tagger.HoldFeed, shown=True,
        text=lambda e, _: ("hold", f"the {e.begins} from {'the end' if e.index is None else e.index} on"),
        performs=consumers.hold_feed, ends=None, footprint=EVERYTHING, joins="never", takes="no time", asked=True,
        touches=None, probe=None),
    Row(tagger.ReleaseFeed, text=lambda _e, _r: ("release", "the feed"), shown=True,
        performs=consumers.release_feed, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(tagger.JudgeHold, text=lambda e, _: ("judge", f"the hold of {e.consumer.name}"), shown=True,
        performs=consumers.judge_hold, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None, probe=lambda _: "hold judged"),
)
# fmt: on
