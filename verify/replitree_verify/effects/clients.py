"""What clients and operators ask of a process, and what they hear."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree_verify.effects.numbers import union
from replitree_verify.effects.row import ANSWERED, EVERYTHING, MEMORY, Row, Touches
from replitree_verify.effects.words import answer_text
from replitree_verify.outcomes import branches
from replitree_verify.outcomes.branch import Branch
from replitree_verify.probes.catalog import probes_of_answer
from replitree_verify.process.read_requests import AwaitAnswers, AwaitPointer, AwaitReadable, Shown, ShowRows
from replitree_verify.process.restore_duties import LockDisk, OpenTable, UnlockDisk

STRICT = "linearizable"
"""The level of reads that show what any client was told before."""


# fmt: off
ROWS = (
    Row(fx.Answer, text=lambda e, _: ("answer", f"request {e.request}: {answer_text(e.answer)}"), shown=True,
        performs=None, ends=lambda e, scene: (Branch(None, scene.here, answers=((e.request, e.answer),)),),
        footprint=MEMORY, joins="always", takes="no time", asked=False,
        touches=Touches((), (), "seen", leaves=lambda on, e, _: on.bit("answer", e.request)), probe=probes_of_answer),
    Row(AwaitAnswers, text=lambda e, _: ("begins", f"a {e.level} read"), shown=True,
        performs=None, ends=branches.read_table, footprint=ANSWERED, joins="never", takes="no time", asked=True,
        touches=Touches((), (), "unseen", looks=lambda on, e, _: union(
            on.bit("answer", each) for each in (on.model.requests if e.level == STRICT else e.known))), probe=None),
    Row(AwaitPointer, text=lambda _e, _r: ("remember", "the pointer"), shown=True,
        performs=None, ends=branches.read_table, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("state", "place"), (), "unseen"), probe=None),
    Row(AwaitReadable, shown=True,
        text=lambda e, _: ("wakes", f"all below {e.position} is {'executed' if e.executed else 'pulled'}"),
        performs=None, ends=branches.read_table, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=Touches(("state", "place", "torn", "taken", "given", "held"), (), "unseen"), probe=None),
    # It also reads the log below what was pulled, which stays as it is.
    Row(ShowRows, text=lambda e, _: ("shows", ", ".join(part.name for part in e.parts) or "nothing"), shown=True,
        performs=None, ends=branches.read_table, footprint=EVERYTHING, joins="always", takes="no time", asked=False,
        touches=Touches(("held",), (), "unseen", leaves=lambda on, e, _: on.bit("answer", e.number),
                        looks=lambda on, e, disk: on.parts(disk, (part.name for part in e.parts))),
        probe=lambda seen: f"{seen.effect.level} read" if isinstance(seen.outcome, Shown) else "read expired"),
    Row(LockDisk, text=lambda e, _: ("lock", f"the data folder of {e.replica}"), shown=True,
        performs=None, ends=branches.lock, footprint=EVERYTHING, joins="never", takes="no time", asked=True,
        touches=None, probe=None),
    Row(UnlockDisk, text=lambda _e, _r: ("unlock", "the data folder"), shown=True,
        performs=None, ends=branches.lock, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(OpenTable, text=lambda _e, _r: ("starts", "coordination has the table"), shown=True,
        performs=None, ends=branches.lock, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
)
# fmt: on
