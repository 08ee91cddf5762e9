"""Looking at a blob group of directories, or at one directory of it, without changing anything.

Members are locked for moments only, so a leader may go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replitree.errors import BadInput
from replitree.storage import blob_state
from replitree.storage.blob_directory import BlobDirectory
from replitree.storage.blob_folders import NAME, directories_of, read_group
from replitree.storage.blob_group import BlobGroups, MemberThread
from replitree.storage.blob_member import obstacles_of
from replitree.tablet.channels import Channels
from replitree.tablet.effects import InDoubt, Overtaken
from replitree.tablet.ids import NOTHING, Channel, Generation, GroupId, TabletId, first_of
from replitree.tablet.inspection import GenerationReport, Survey, complaints, generations_of, survey
from replitree.tablet.member import AskFence, Contents, Failed, FenceIs, Scan
from replitree.tablet.quorum import Quorum, end_of

NAMED_MAX = 20
"""How many blobs of one kind are named."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The members that are looked at.

    Attributes
    ----------
    quorum
        The numbers of the group.
    folders, members, obstacles
        For each member where it is, what asks it, and None or why it would not take part.
    is_alone
        Whether it is one member of a group, and nobody asks the others.
    """

    quorum: Quorum
    folders: tuple[Path, ...]
    members: tuple[BlobDirectory, ...]
    obstacles: tuple[str | None, ...]
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class TabletReport:
    """What was found of a tablet.

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
    """

    tablet: int
    fences: tuple[int | None, ...]
    generations: tuple[GenerationReport, ...]
    wrong: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What was found of a group.

    Attributes
    ----------
    group
        Its name.
    members
        For each member None if it would take part, else why not.
    tablets
        What was found of each.
    verdict
        ``sound``, ``damaged``, or ``unknown`` when nothing is known to be wrong and something is not known.
    """

    group: str
    members: tuple[str | None, ...]
    tablets: tuple[TabletReport, ...]

    @property
    def verdict(self) -> str:
        """Whether all is well."""
        if any(each.wrong for each in self.tablets):
            return "damaged"
        is_unknown = any(self.members) or any(each.unknown for each in self.tablets)
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
        folders = tuple(folder / each.folder for each in file.members)
        members = directories_of(folder, file)
        standings = [member.standing() for member in members]
        obstacles = obstacles_of(standings, [each.incarnation for each in file.members])
        return Looked(file.quorum, folders, members, obstacles)
    if (folder / blob_state.NAME).is_file():
        state = blob_state.read_state(folder)
        quorum = Quorum(GroupId(state.group), 1, 1)
        return Looked(quorum, (folder,), (BlobDirectory(folder),), (None,), is_alone=True)
    raise BadInput(f"there is no blob group and no member of one in {path}: name the folder with its {NAME}")


def inspect(looked: Looked) -> GroupReport:
    """Look at every tablet of a group."""
    group = looked.quorum.group
    threads = [MemberThread(*each) for each in zip(looked.members, looked.obstacles, strict=True)]
    groups = BlobGroups({group: (looked.quorum, threads)}, patience_s=60.0)
    try:
        tablets = tuple(_inspected(looked, groups, tablet) for tablet in tablets_in(looked.folders))
    finally:
        groups.close()
    return GroupReport(str(group), looked.obstacles, tablets)


def tablets_in(folders: Sequence[Path]) -> tuple[TabletId, ...]:
    """Return the tablets that have anything in some members."""
    names = {path.name for folder in folders for path in (folder / "blobs").glob("*") if path.is_dir()}
    return tuple(sorted(TabletId(int(name, 16)) for name in names))


def _inspected(looked: Looked, groups: BlobGroups, tablet: TabletId) -> TabletReport:
    wrong, unknown = _of_members(looked, tablet)
    found = groups.run(survey(_channels(looked, tablet)))
    fences = tuple(_fence(member, tablet) for member in looked.members)
    if isinstance(found, InDoubt | Overtaken):
        reason = found.reason if isinstance(found, InDoubt) else "a leader was elected meanwhile; look again"
        return TabletReport(int(tablet), fences, (), wrong, (*unknown, f"the log: {reason}"))
    return TabletReport(int(tablet), fences, generations_of(found), *_complained(looked, found, wrong, unknown))


def _complained(
    looked: Looked, found: Survey, wrong: tuple[str, ...], unknown: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add what is wrong with the log; what one member alone lacks, another one may have."""
    more, doubts = complaints(found)
    if looked.is_alone:
        return wrong, (*unknown, *doubts, *(f"{each} in this member; others may have it" for each in more))
    return (*wrong, *more), (*unknown, *doubts)


def _channels(looked: Looked, tablet: TabletId) -> Channels:
    """Return the channels that a tablet has in these members: all of them lie in the one group."""
    places = [path for folder in looked.folders for path in (folder / "blobs" / f"{tablet:016x}").glob("*")]
    last = max([1, *(int(path.name, 16) for path in places)])
    return Channels(tablet, (((Generation(1), looked.quorum.group),),) * (last + 1))


def _fence(member: BlobDirectory, tablet: TabletId) -> int | None:
    reply = member.answer(AskFence(tablet))
    return int(reply.fence.generation) if isinstance(reply, FenceIs) and reply.fence is not None else None


def _of_members(looked: Looked, tablet: TabletId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check every copy of every blob; return what is wrong, and what is not known."""
    wrong, unknown = list[str](), list[str]()
    for number, (member, obstacle) in enumerate(zip(looked.members, looked.obstacles, strict=True)):
        if obstacle is not None:
            unknown.append(f"member {number}: {obstacle}")
            continue
        for channel in range(len(_channels(looked, tablet).histories)):
            first = first_of(tablet, Channel(channel), NOTHING)
            match member.answer(Scan(first, end_of(first))):
                case Contents() as contents:
                    wrong += _damage(number, contents)
                case Failed(reason):
                    unknown.append(f"member {number}: {reason}")
                case reply:
                    unknown.append(f"member {number}: {reply}")
    return tuple(wrong), tuple(unknown)


def _damage(number: int, contents: Contents) -> list[str]:
    named = [f"member {number}: blob {blob} does not match its checksum" for blob in contents.damaged[:NAMED_MAX]]
    if len(contents.damaged) > NAMED_MAX:
        named.append(f"member {number}: {len(contents.damaged) - NAMED_MAX} more blobs do not")
    return named + [
        f"member {number}: between {first} and {last} is data that can't be told" for first, last in contents.doubts
    ]
