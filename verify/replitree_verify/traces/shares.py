"""What a replica does with shares, and with parts that move, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.protocol.program.stages import AwaitMove, ForgetUpload, MoveEnded, NoteUpload
from replitree.protocol.shares.moving import (
    BringRows,
    FindShare,
    Moved,
    MoveOutcome,
    NameMove,
    NoteMove,
    NotMoved,
    PutPart,
    ToDisk,
    ToShare,
)
from replitree.protocol.shares.share import DeleteObjects, LookAtObjects
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    NameShares,
    PutShares,
    SharesHere,
    SharesInDoubt,
    SharesOf,
    SharesSettled,
)
from replitree_verify.process.fsck import AwaitOrphans
from replitree_verify.process.moves import HearPlaces, LoseRows
from replitree_verify.process.uploads import AwaitUpload, DiscardUpload, HearName, KeepUpload, TellName
from replitree_verify.world.objects import PutObjects


def _move_text(outcome: MoveOutcome) -> str:
    match outcome:
        case Moved():
            return "moved"
        case NotMoved(reason):
            return f"not moved: {reason}"
    return "may have moved"


VERBS: dict[type, Callable[[Any, str], tuple[str, str]]] = {
    NameShares: lambda e, _r: ("name", f"shares for {e.staging}"),
    PutShares: lambda e, _r: ("put", f"the objects of {e.staging}"),
    PutObjects: lambda e, _r: ("put", f"the objects of {e.share}"),
    DeleteObjects: lambda e, _r: ("delete", f"the objects of {e.share}"),
    LookAtObjects: lambda e, _r: ("look", f"at the objects of {', '.join(e.shares)}"),
    SharesOf: lambda e, _r: ("look", f"for the shares of {', '.join(e.parts)} on disk"),
    SharesHere: lambda _e, _r: ("list", "shares on disk"),
    SharesSettled: lambda e, _r: ("remember", f"{', '.join(e.shares) or 'no share'} written no more"),
    HasPart: lambda e, _r: ("look", f"for {e.part} on disk"),
    ForgetParts: lambda e, _r: ("set aside", f"{', '.join(e.parts)}: the shares are gone"),
    SharesInDoubt: lambda e, _r: ("remember", f"{', '.join(e.shares)} in doubt: must activate again"),
    HearPlaces: lambda e, _r: ("hear", f"that parts belong {', then '.join(place.value for place in e.places)}"),
    AwaitMove: lambda _e, _r: ("wakes", "a part to move"),
    MoveEnded: lambda e, _r: ("remember", f"{e.turn.part} {_move_text(e.outcome)}"),
    FindShare: lambda e, _r: ("ask", f"other replicas for a share of {e.part}"),
    NameMove: lambda e, _r: ("name", f"a share for {e.part}"),
    NoteMove: lambda e, _r: ("note", f"on disk that {e.part} may have {e.share}"),
    PutPart: lambda e, _r: ("put", f"the files of {e.part} as {e.share}"),
    ToShare: lambda e, _r: ("say", f"in the manifest that {e.part} is in {e.share}"),
    BringRows: lambda e, _r: ("bring", f"the files of {e.part} from {e.share}"),
    ToDisk: lambda e, _r: ("say", f"in the manifest that {e.part} is on disk"),
    AwaitUpload: lambda _e, _r: ("wakes", "a client uploads"),
    NoteUpload: lambda e, _r: ("note", f"on disk that an upload has {', '.join(e.shares)}"),
    ForgetUpload: lambda e, _r: ("forget", f"on disk that an upload has {', '.join(e.shares)}"),
    DiscardUpload: lambda e, _r: ("discard", f"the upload of {', '.join(e.shares)}"),
    KeepUpload: lambda e, _r: ("remember", f"to stage {e.staging} of {e.share}"),
    TellName: lambda e, _r: ("tell", f"a client of {e.share}"),
    HearName: lambda _e, _r: ("hear", "of a share"),
    AwaitOrphans: lambda _e, _r: ("wakes", "objects without a node"),
    LoseRows: lambda e, _r: ("lose", f"the files of {e.part}"),
}
"""What each effect is called, and what it is about; the second argument is the name of the replica."""

__all__ = ["VERBS"]
