"""Everything at once, as large as the budget allows."""

from __future__ import annotations

from replitree.verify.model import Fault, Insert, Model
from replitree.verify.models.insert import TWO

SAME = (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "a"),)))
OTHER = (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "b"),)))
BOTH = ("r1", "r2")

MODELS = (
    Model(
        "combined",
        "two replicas insert with one token, pull and execute; a crash anywhere",
        TWO,
        SAME,
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        probes=("crash", "duplicate", "fetched", "own part published by execute", "committed staging kept"),
    ),
    Model(
        "combined_tokens",
        "two replicas insert with different tokens, pull and execute; a crash anywhere",
        TWO,
        OTHER,
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        nightly=True,
    ),
    Model(
        "combined_doubt",
        "two replicas insert with one token, pull and execute; an answer is lost",
        TWO,
        SAME,
        {Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        nightly=True,
    ),
)
