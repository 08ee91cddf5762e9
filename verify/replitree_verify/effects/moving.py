"""Effects of parts that move between a disk and the object store, and of uploads."""

from __future__ import annotations

from replitree.protocol.program.stages import AwaitMove, ForgetUpload, MoveEnded, NoteUpload
from replitree.protocol.shares import moving
from replitree_verify.effects.row import ALL_DISKS, ALONE, COORDINATION, DISK, MEMORY, STORED, Row
from replitree_verify.outcomes import objects
from replitree_verify.outcomes.local import move, upload
from replitree_verify.process.moves import HearPlaces, LoseRows
from replitree_verify.process.uploads import AwaitUpload, DiscardUpload, HearName, KeepUpload, TellName


def _move_text(outcome: moving.MoveOutcome) -> str:
    if isinstance(outcome, moving.NotMoved):
        return f"not moved: {outcome.reason}"
    return "moved" if isinstance(outcome, moving.Moved) else "may have moved"


# fmt: off
ROWS = (
    Row(HearPlaces, shown=True,
        text=lambda e, _: ("hear", f"that parts belong {', then '.join(place.value for place in e.places)}"),
        performs=move, ends=None, footprint=ALONE, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(AwaitMove, text=lambda _e, _r: ("wakes", "a part to move"), shown=True,
        performs=move, ends=None, footprint=ALONE, joins="by rule", takes="no time", asked=False, touches=None, probe=None),
    Row(MoveEnded, text=lambda e, _: ("remember", f"{e.turn.part} {_move_text(e.outcome)}"), shown=True,
        performs=move, ends=None, footprint=MEMORY, joins="always", takes="no time", asked=False, touches=None, probe=None),
    Row(moving.FindShare, text=lambda e, _: ("ask", f"other replicas for a share of {e.part}"), shown=True,
        performs=None, ends=objects.find_share, footprint=ALL_DISKS, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(moving.NameMove, text=lambda e, _: ("name", f"a share for {e.part}"), shown=True,
        performs=move, ends=None, footprint=MEMORY, joins="always", takes="no time", asked=False, touches=None, probe=None),
    Row(moving.NoteMove, text=lambda e, _: ("note", f"on disk that {e.part} may have {e.share}"), shown=True,
        performs=move, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    Row(moving.PutPart, text=lambda e, _: ("put", f"the files of {e.part} as {e.share}"), shown=True,
        performs=None, ends=objects.put_part, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(moving.ToShare, text=lambda e, _: ("say", f"in the manifest that {e.part} is in {e.share}"), shown=True,
        performs=move, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    Row(moving.BringRows, text=lambda e, _: ("bring", f"the files of {e.part} from {e.share}"), shown=True,
        performs=None, ends=objects.bring_rows, footprint=STORED, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(moving.ToDisk, text=lambda e, _: ("say", f"in the manifest that {e.part} is on disk"), shown=True,
        performs=move, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    Row(LoseRows, text=lambda e, _: ("lose", f"the files of {e.part}"), shown=True,
        performs=move, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    # --- uploads
    Row(AwaitUpload, text=lambda _e, _r: ("wakes", "a client uploads"), shown=True,
        performs=upload, ends=None, footprint=DISK, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(NoteUpload, text=lambda e, _: ("note", f"on disk that an upload has {', '.join(e.shares)}"), shown=True,
        performs=upload, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    Row(ForgetUpload, text=lambda e, _: ("forget", f"on disk that an upload has {', '.join(e.shares)}"), shown=True,
        performs=upload, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
    Row(DiscardUpload, text=lambda e, _: ("discard", f"the upload of {', '.join(e.shares)}"), shown=True,
        performs=upload, ends=None, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=None, probe=lambda _: "upload discarded"),
    Row(KeepUpload, text=lambda e, _: ("remember", f"to stage {e.staging} of {e.share}"), shown=True,
        performs=upload, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=None, probe=lambda _: "upload taken"),
    Row(TellName, text=lambda e, _: ("tell", f"a client of {e.share}"), shown=True,
        performs=None, ends=objects.tell_name, footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(HearName, text=lambda _e, _r: ("hear", "of a share"), shown=True,
        performs=None, ends=objects.hear_name, footprint=ALL_DISKS, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
)
# fmt: on
