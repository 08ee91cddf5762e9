"""Effects of the mender, and what happens by itself to parts."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.program import mender_effects as mx
from replitree.protocol.program.stages import Lack
from replitree_verify.effects.numbers import Numbers
from replitree_verify.effects.row import ALL_DISKS, DISK, MEMORY, STORED, Row, Touches
from replitree_verify.effects.words import names_text
from replitree_verify.outcomes import objects
from replitree_verify.outcomes.local import lose, mend, remember
from replitree_verify.process.lost_parts import STAGED, AwaitBroken, Break, Heal, KeepCopy

_SERVING = ("state", "epoch")
_QUEUE = ("taken", "given")


def _named(on: Numbers, effect: mx.PutBack | mx.TakeOut, disk: int) -> int:
    return on.listed_parts(disk, (name for name, _ in effect.parts))


# fmt: off
ROWS = (
    Row(Break, text=lambda e, _: ("breaks", e.what), shown=True,
        performs=lose, ends=None, footprint=DISK, joins="never", takes="no time", asked=True,
        touches=Touches((), (), "seen",
            looks=lambda on, e, disk: on.bit("folders", disk) if e.what == STAGED else on.parts(disk, (e.what,)),
            leaves=lambda on, e, disk: on.bit("folders", disk) if e.what == STAGED else on.listed_parts(disk, (e.what,))),
        probe=None),
    Row(Heal, text=lambda e, _: ("heals", e.part), shown=True,
        performs=lose, ends=None, footprint=ALL_DISKS, joins="never", takes="no time", asked=True,
        touches=Touches((), (), "seen", leaves=lambda on, e, disk: on.listed_parts(disk, (e.part,)),
                        paths=lambda e, replica: ((layout.part(replica, e.part),), ())),
        probe=None),
    Row(KeepCopy, text=lambda e, _: ("keeps", f"a copy of {e.part}"), shown=True,
        performs=lose, ends=None, footprint=DISK, joins="never", takes="no time", asked=True, touches=None, probe=None),
    Row(AwaitBroken, text=lambda e, _: ("wakes", f"the files of {e.part} are gone"), shown=True,
        performs=lose, ends=None, footprint=ALL_DISKS, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(mx.AwaitLoss, text=lambda e, _: ("wakes", f"{e.part} can't be had here"), shown=True,
        performs=lose, ends=None, footprint=ALL_DISKS, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, "place", *_QUEUE, "waiting", "held", "lacking"), (), "unseen",
            looks=lambda on, e, disk: on.parts(disk, (e.part,)) | (on.bit("coordination") if e.is_again else 0)),
        probe=None),
    Row(Lack, text=lambda e, _: ("lacks", names_text(e.parts) or "nothing"), shown=False,
        performs=lambda e, here: remember(here, here.memory.lacks(e.parts)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("lacking",), ("lacking",), "seen"), probe=None),
    Row(mx.AwaitLacking, text=lambda _e, _r: ("wakes", "something to mend, or to note"), shown=True,
        performs=mend, ends=None, footprint=ALL_DISKS, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, *_QUEUE, "held", "lacking", "shares"), ("lacking", "shares"), "seen",
                        looks=lambda on, _e, _disk: on.all_parts() | on.bit("coordination")),
        probe=None),
    Row(mx.PutBack, text=lambda e, _: ("put back", names_text(e.parts)), shown=True,
        performs=mend, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=Touches((), (), "seen", looks=_named, leaves=_named), probe=None),
    Row(mx.TakeOut, text=lambda e, _: ("take out", names_text(e.parts)), shown=True,
        performs=mend, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=Touches((), (), "seen", looks=_named, leaves=_named), probe=None),
    Row(mx.WholeAgain, text=lambda e, _: ("mended", ", ".join(e.parts)), shown=True,
        performs=mend, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=Touches(("lacking",), ("lacking",), "seen", looks=lambda on, e, disk: on.listed_parts(disk, e.parts)),
        probe=None),
    Row(mx.SeekFiles, text=None, shown=False,
        performs=mend, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("shares",), (), "unseen"), probe=None),
    Row(mx.SeekShares, text=None, shown=False,
        performs=mend, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((), (), "unseen"), probe=None),
    Row(mx.AskAgain, text=None, shown=False,
        performs=mend, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((), (), "unseen"), probe=None),
    # No model has replicas that check the copies of others: the mender asks none.
    Row(mx.HaveChecked, text=None, shown=True,
        performs=None, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(mx.Losing, text=None, shown=False,
        performs=mend, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(_QUEUE, (), "unseen"), probe=None),
    Row(mx.Telling, text=None, shown=False,
        performs=mend, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, "lacking", "shares"), (), "unseen"), probe=None),
    Row(mx.TakeFromStore, text=lambda e, _: ("take", f"{names_text(e.parts)} from the store"), shown=True,
        performs=None, ends=objects.take, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=lambda seen: bool(seen.outcome) and "found in the store"),
    Row(mx.WriteAnew, text=lambda e, _: ("write anew", names_text(e.parts)), shown=True,
        performs=None, ends=objects.take, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
)
# fmt: on
