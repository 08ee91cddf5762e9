"""A process that leads a tablet in three directories: it commits as fast as it can and prints what is committed.

Arguments: the folder of the directories.  Output: the generation, the bodies that it recovered, then one line for each commit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.commit import Draft, form, open_ledger, stored
from replitree.tablet.core.election import Candidate, Won, stand
from replitree.tablet.group.effects import Procedure, Put, Stored
from replitree.tablet.group.ids import BlobId, Generation, GroupId, TabletId
from replitree.tablet.group.openings import open_group
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.asking import performed
from replitree.tablet.members.directory import BlobDirectory
from replitree.tablet.members.group import BlobGroups, MemberThread
from replitree.tablet.members.member import BlobMember

GROUP = GroupId("g")
CHANNELS = Channels(TabletId(7), (((Generation(1), GROUP),),))
INCARNATIONS = ("d0", "d1", "d2")


def opened_groups(root: Path) -> BlobGroups:
    """Open the group with the directories that are there."""
    quorum = Quorum(GROUP, 3, 2)
    members: list[BlobMember] = [BlobDirectory(root / str(number)) for number in range(3)]
    obstacles = performed(members, open_group(quorum, INCARNATIONS)).obstacles
    threads = [MemberThread(member, obstacle) for member, obstacle in zip(members, obstacles, strict=True)]
    return BlobGroups({GROUP: (quorum, threads)})


def say(*words: str) -> None:
    """Write one line."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def put(blob: BlobId, data: bytes) -> Procedure[object]:
    """Store one blob."""
    return (yield Put(GROUP, blob, data))


def main(root: Path, issuer: str) -> None:
    """Lead until nothing can be stored any more."""
    groups = opened_groups(root)
    elected = groups.run(stand(Candidate(CHANNELS, issuer)))
    assert isinstance(elected, Won), elected
    bodies = [entry.body.decode() for _, entry in elected.recovered.accepted]
    say(str(elected.generation), *bodies)
    ledger = open_ledger(CHANNELS.tablet, elected)
    while True:
        body = f"{elected.generation}:{ledger.last + 1}"
        ledger, blobs = form(ledger, Draft(body.encode()))
        for blob, data in blobs:
            if groups.run(put(blob, data)) != Stored():
                say("deposed")
                groups.close()
                return
            ledger, steps = stored(ledger, blob)
            if steps:
                say(body)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
