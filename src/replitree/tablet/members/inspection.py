"""Looking at a blob group, or at one directory of it, without changing anything.

Members are locked for moments only, so a leader may go on meanwhile.  All are asked at once (`asking`): one that hangs is
waited for once, is not asked anything else, and what it has is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from replitree.errors import BadInput, StoreError
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.inspection import GenerationReport, complaints, generations_of, survey
from replitree.tablet.core.losses import in_words, read_records
from replitree.tablet.group.admission import Answer, AskStanding, AskStreams, Question, Standing, obstacles_of
from replitree.tablet.group.effects import NotKnown, Overtaken
from replitree.tablet.group.ids import NOTHING, Channel, Generation, GroupId, TabletId, first_of
from replitree.tablet.group.member import AskFence, Contents, Failed, FenceIs, Scan
from replitree.tablet.group.openings import AskEach
from replitree.tablet.group.quorum import Quorum, end_of
from replitree.tablet.members import state as blob_state
from replitree.tablet.members.asking import Asking
from replitree.tablet.members.directory import BlobDirectory
from replitree.tablet.members.folders import NAME, members_of, read_group
from replitree.tablet.members.group import BlobGroups
from replitree.tablet.members.member import BlobMember, Streams
from replitree.tablet.members.places import asked, close_member

NAMED_MAX = 20
"""How many blobs of one kind are named."""

PATIENCE_S = 60.0
"""How long a silent member is waited for, in seconds; so many times longer while it reads a log (`READ_PATIENCE`)."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The members that are looked at.

    Attributes
    ----------
    quorum
        The numbers of the group.
    members, obstacles
        For each member what asks it, and None or why it would not take part.
    asking
        What asks them.
    is_alone
        Whether it is one member of a group, and the others are not asked.
    """

    quorum: Quorum
    members: tuple[BlobMember, ...]
    obstacles: tuple[str | None, ...]
    asking: Asking
    is_alone: bool = False

    def ask(self, question: Question, *, obstructed: bool = True) -> tuple[Answer | None, ...]:
        """Ask each member; `obstructed`: those that would not take part, too, else they have no answer."""
        asked = (question if obstructed or obstacle is None else None for obstacle in self.obstacles)
        return self.asking.each(self.members, AskEach(tuple(asked)))


@dataclass(frozen=True, slots=True)
class LossReport:
    """A loss that was accepted; the generation that was opened for it, if it was; its record, in words."""

    generation: int
    record: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TabletReport:
    """The report on a tablet.

    Attributes
    ----------
    tablet
        Which.
    fences
        Of each member the generation up to which it takes nothing; None: it has no fence, or does not answer.
    generations
        Oldest first.
    wrong, unknown
        What is wrong, and what is not known.
    losses
        What an operator has accepted to be lost, oldest first.
    """

    tablet: int
    fences: tuple[int | None, ...]
    generations: tuple[GenerationReport, ...]
    wrong: tuple[str, ...]
    unknown: tuple[str, ...]
    losses: tuple[LossReport, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The report on a group.

    Attributes
    ----------
    group
        Its name.
    members
        For each member None if it would take part, else why not.
    tablets
        What was found of each.
    unknown
        What is not known of tablets that may not even be among these.
    verdict
        ``sound``, ``damaged``, or ``unknown`` when nothing is known to be wrong and something is not known.
    """

    group: str
    members: tuple[str | None, ...]
    tablets: tuple[TabletReport, ...]
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether all is well."""
        if any(each.wrong for each in self.tablets):
            return "damaged"
        is_unknown = any(self.members) or bool(self.unknown) or any(each.unknown for each in self.tablets)
        return "unknown" if is_unknown else "sound"


def look_at(path: Path) -> Looked:
    """Find the members of a group in a folder: the group's, its file, or one member's.

    Raises
    ------
    BadInput
        There is none.
    """
    folder = path.parent if path.name == NAME else path
    if (folder / NAME).is_file():
        file = read_group(folder)
        members = members_of(folder, file)
        asking = Asking(PATIENCE_S)
        standings = asking.each(members, AskEach((AskStanding(),) * len(members), file.quorum.read))
        obstacles = obstacles_of(
            cast("tuple[Standing | Failed, ...]", standings), [each.incarnation for each in file.members]
        )
        return Looked(file.quorum, members, obstacles, asking)
    if (folder / blob_state.NAME).is_file():
        state = blob_state.read_state(folder)
        quorum = Quorum(GroupId(state.group), 1, 1)
        return Looked(quorum, (BlobDirectory(folder),), (None,), Asking(PATIENCE_S), is_alone=True)
    raise BadInput(f"there is no blob group and no member of one in {path}: name the folder with its {NAME}")


def inspect(looked: Looked) -> GroupReport:
    """Look at every tablet of a group."""
    group = looked.quorum.group
    members = [asked(*each) for each in zip(looked.members, looked.obstacles, strict=True)]
    groups = BlobGroups({group: (looked.quorum, members)}, PATIENCE_S)
    try:
        streams = cast("tuple[Streams | Failed, ...]", looked.ask(AskStreams()))
        tablets = tuple(_inspected(looked, groups, channels) for channels in channels_in(group, streams))
    finally:
        groups.close()
        looked.asking.close()
        for member in looked.members:
            close_member(member)
    unlisted = tuple(
        f"member {number} does not say which tablets it has, so some may not have been looked at: {found.reason}"
        for number, found in enumerate(streams)
        if isinstance(found, Failed)
    )
    return GroupReport(str(group), looked.obstacles, tablets, unlisted)


def channels_in(group: GroupId, streams: Sequence[Streams | Failed]) -> tuple[Channels, ...]:
    """Return the channels of each tablet that some member says it has anything of; all of them lie in the one group."""
    last = dict[TabletId, int]()
    for found in streams:
        for tablet, channel in found.streams if isinstance(found, Streams) else ():
            last[tablet] = max(channel, last.get(tablet, 1))
    history = ((Generation(1), group),)
    return tuple(Channels(tablet, (history,) * (last[tablet] + 1)) for tablet in sorted(last))


def _inspected(looked: Looked, groups: BlobGroups, channels: Channels) -> TabletReport:
    tablet = channels.tablet
    wrong, unknown = _of_members(looked, channels)
    known = (each.fence if isinstance(each, FenceIs) else None for each in looked.ask(AskFence(tablet)))
    fences = tuple(None if fence is None else int(fence.generation) for fence in known)
    losses = tuple[LossReport, ...]()
    try:
        records = groups.run(read_records(channels))
    except StoreError as error:
        unknown = (*unknown, str(error))
    else:
        if isinstance(records, tuple):
            losses = tuple(LossReport(int(generation), in_words(record)) for generation, record in records)
        else:
            unknown = (*unknown, f"accepted losses: {records}")
    found = groups.run(survey(channels))
    if isinstance(found, NotKnown | Overtaken):
        reason = found.reason if isinstance(found, NotKnown) else "a leader was elected meanwhile; look again"
        return TabletReport(int(tablet), fences, (), wrong, (*unknown, f"the log: {reason}"), losses)
    more_wrong, doubts = complaints(found)
    if looked.is_alone:
        # What one member lacks another may have: alone it proves nothing.
        doubts = (*doubts, *(f"{each} in this member; others may have it" for each in more_wrong))
        more_wrong = ()
    return TabletReport(int(tablet), fences, generations_of(found), (*wrong, *more_wrong), (*unknown, *doubts), losses)


def _of_members(looked: Looked, channels: Channels) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check every copy of every blob; return what is wrong, and what is not known."""
    wrong = list[str]()
    unknown = [
        f"member {number}: {obstacle}" for number, obstacle in enumerate(looked.obstacles) if obstacle is not None
    ]
    for channel in range(len(channels.histories)):
        first = first_of(channels.tablet, Channel(channel), NOTHING)
        for number, reply in enumerate(looked.ask(Scan(first, end_of(first)), obstructed=False)):
            if isinstance(reply, Contents):
                named = [
                    f"member {number}: blob {blob} does not match its checksum" for blob in reply.damaged[:NAMED_MAX]
                ]
                if len(reply.damaged) > NAMED_MAX:
                    named.append(f"member {number}: {len(reply.damaged) - NAMED_MAX} more blobs do not")
                wrong += named + [
                    f"member {number}: between {first} and {last} is data that can't be told"
                    for first, last in reply.doubts
                ]
            elif reply is not None:
                unknown.append(f"member {number}: {reply.reason if isinstance(reply, Failed) else reply}")
    return tuple(wrong), tuple(unknown)
