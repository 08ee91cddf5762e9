"""Effects on shares, on the object store that they lie in, and those of fsck."""

from __future__ import annotations

from replitree.protocol.program.stages import AwaitUpkeep, CurrentSharer, LetGoEnded, Opened
from replitree.protocol.rescue.fsck_look import AbortUpload, AskReferences, DeleteTrial, ListObjects
from replitree.protocol.shares import share_effects as sx
from replitree.protocol.shares.share import DeleteObjects, LookAtObjects
from replitree_verify.effects.row import ALONE, DISK, EVERYTHING, MEMORY, STORED, Row
from replitree_verify.outcomes import objects
from replitree_verify.outcomes.local import move, share
from replitree_verify.process.fsck import AwaitOrphans, ReportFindings
from replitree_verify.process.shares import ListDetached
from replitree_verify.world.objects import PutObjects

# fmt: off
ROWS = (
    Row(Opened, text=lambda e, _: ("open", f"the object store, as {e.incarnation}"), shown=True,
        performs=share, ends=None, footprint=MEMORY, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(CurrentSharer, text=lambda _e, _r: ("remember", "its incarnation"), shown=True,
        performs=share, ends=None, footprint=MEMORY, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(sx.NameShares, text=lambda e, _: ("name", f"shares for {e.staging}"), shown=True,
        performs=share, ends=None, footprint=DISK, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(sx.PutShares, text=lambda e, _: ("put", f"the objects of {e.staging}"), shown=True,
        performs=None, ends=objects.put, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(PutObjects, text=lambda e, _: ("put", f"the objects of {e.share}"), shown=True,
        performs=None, ends=objects.put_objects, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(DeleteObjects, text=lambda e, _: ("delete", f"the objects of {e.share}"), shown=True,
        performs=None, ends=objects.delete, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(LookAtObjects, text=lambda e, _: ("look", f"at the objects of {', '.join(e.shares)}"), shown=True,
        performs=None, ends=objects.look, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(sx.SharesOf, text=lambda e, _: ("look", f"for the shares of {', '.join(e.parts)} on disk"), shown=True,
        performs=share, ends=None, footprint=DISK, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(sx.SharesHere, text=lambda _e, _r: ("list", "shares on disk"), shown=True,
        performs=share, ends=None, footprint=DISK, joins="never", takes="known", asked=False, touches=None, probe=None),
    Row(sx.SharesSettled, text=lambda e, _: ("remember", f"{', '.join(e.shares) or 'no share'} written no more"), shown=True,
        performs=share, ends=None, footprint=MEMORY, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(sx.SharesInDoubt, text=lambda e, _: ("remember", f"{', '.join(e.shares)} in doubt: must activate again"), shown=True,
        performs=move, ends=None, footprint=MEMORY, joins="never", takes="known", asked=False, touches=None, probe=None),
    Row(sx.HasPart, text=lambda e, _: ("look", f"for {e.part} on disk"), shown=True,
        performs=share, ends=None, footprint=DISK, joins="always", takes="known", asked=False, touches=None, probe=None),
    Row(sx.ForgetParts, text=lambda e, _: ("set aside", f"{', '.join(e.parts)}: the shares are gone"), shown=True,
        performs=share, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    # No effect of the product: a mutant of the simulator asks for it.
    Row(ListDetached, text=None, shown=True,
        performs=None, ends=None, footprint=DISK, joins="never", takes="known", asked=False, touches=None, probe=None),
    Row(AwaitUpkeep, text=lambda _e, _r: ("wakes", "shares to look after"), shown=True,
        performs=share, ends=None, footprint=ALONE, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(LetGoEnded, shown=True,
        text=lambda e, _: ("remember", "{} of {} {}".format(
            ", ".join(e.left.shares), e.left.part or "what was staged", "released" if e.is_gone else "still owned")),
        performs=share, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    # --- fsck
    Row(AwaitOrphans, text=lambda _e, _r: ("wakes", "objects without a node"), shown=True,
        performs=None, ends=objects.await_orphans, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(ListObjects, text=lambda _e, _r: ("list", "all objects of the store"), shown=True,
        performs=None, ends=objects.check, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(AskReferences, text=lambda e, _: ("ask", f"{e.replica.name} for its shares"), shown=True,
        performs=None, ends=objects.check, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(ReportFindings, shown=True,
        text=lambda e, _: ("says", ", ".join(f"{each.kind.value} {each.share}" for each in e.findings) or "all is well"),
        performs=None, ends=objects.check, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    # No model has uploads in pieces, or objects that belong to no table.
    Row(AbortUpload, text=None, shown=True,
        performs=None, ends=None, footprint=STORED, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(DeleteTrial, text=None, shown=True,
        performs=None, ends=None, footprint=STORED, joins="never", takes="no time", asked=False, touches=None, probe=None),
)
# fmt: on
