"""What must hold of the blobs of data that entries speak of, and of a group that has the data alone.

* I2: who leads has fenced the groups of all channels: none of them begins to store a blob of an earlier generation
* I12: no blob is deleted that the entries that count refer to, or say is needed
* I19: an undisturbed successor deletes what is not needed: at once what only declined entries spoke of, and everything but its
  own snapshot once an entry names that
"""

from __future__ import annotations

from collections.abc import Sequence

from replitree.tablet.core import collecting, commit
from replitree.tablet.core.election import Candidate, Won, stand
from replitree.tablet.core.recovery import Accepted, own_references
from replitree.tablet.core.snapshots import DATA
from replitree.tablet.group.effects import Put, Stored
from replitree.tablet.group.ids import BlobId, Cookie, Generation, GenStep, Step
from replitree.tablet.group.member import Holdings, may_write
from replitree_verify.tablets.damage import can_be_read
from replitree_verify.tablets.drafts import Leader, body_id, draft_of, state_id
from replitree_verify.tablets.model import TABLET, Kind, Model
from replitree_verify.tablets.undisturbed import ISSUER, Undisturbed


def broken_fences(model: Model, held: Sequence[Holdings], generation: Generation) -> str | None:
    """I2: return which group would still store something of the generation before that of a new leader, or None."""
    blob, first = BlobId(TABLET, DATA, Generation(generation - 1), Step(1), Cookie(0)), 0
    for group in model.groups:
        members = held[first : first + group.members]
        if sum(may_write(each.fence(TABLET), blob, None) for each in members) >= group.write:
            return f"I2: generation {generation} leads, and group {group.group} stores blobs of earlier generations"
        first += group.members
    return None


def broken_needs(model: Model, accepted: Accepted, held: Sequence[Holdings], copies_min: int) -> str | None:
    """I12: return which blob that is needed too few members have, or None.

    Parameters
    ----------
    model, accepted
        What is explored, and what counts.
    held
        What the members hold that are looked at.
    copies_min
        How many of these must have it.
    """
    needed = [blob for _, entry in accepted for blob in own_references(TABLET, entry)]
    created = list[BlobId]()
    places = [place for place, _ in accepted] if model.collects_data else []
    # A snapshot stands for all entries before it in its own generation: they count, although they need not be found.
    if places and accepted[0][1].is_snapshot:
        generation, last = places[0]
        places = [*(GenStep(generation, Step(step)) for step in range(1, last)), *places]
    # What was created and not left is told from what was committed, not from what entries say of it.
    for place in places:
        commits = next(seat.commits for seat in model.seats if seat.generation == place.generation)
        # Reads and collections form no entry, so they take no step.
        entries = [kind for kind in commits if kind not in {Kind.READ, Kind.COLLECT}]
        match entries[place.step - 1]:
            case Kind.REFERENCE:
                created.append(body_id(*place))
            case Kind.LEAVE:
                created = created[1:]
            case Kind.STATE:
                created = [state_id(*place)]
    for blob in dict.fromkeys((*needed, *created)):
        # A store deletes some time after it has raised the barrier: what is below it is as good as gone.
        copies = sum(can_be_read(each, blob) and not each.barrier(*blob[:2]).has_swept(blob) for each in held)
        if copies < copies_min:
            return f"I12: {blob} is needed, and {copies} of {len(held)} members have it"
    return None


def base_of(accepted: Accepted) -> tuple[int, int]:
    """Return the snapshot that covers everything before it, or the begin."""
    return accepted[0][0] if accepted and accepted[0][1].is_snapshot else (0, 0)


def broken_end(model: Model, held: tuple[Holdings, ...]) -> str | None:
    """I19: return what a successor that every member hears does not get rid of, or None."""
    # Every member is there: one that is away keeps what the others delete.
    members = Undisturbed(model, held, tuple(range(model.members_of_all)))
    result = members.run(stand(Candidate(model.channels, ISSUER)))
    if not isinstance(result, Won):
        return None  # that is another invariant's
    accepted = result.recovered.accepted
    known = collecting.begun(TABLET, result.generation, accepted)
    leader = _collected(model, members, Leader(commit.open_ledger(TABLET, result), known))
    created = {blob for _, entry in accepted for blob in entry.gc_discovered}
    for number, each in enumerate(members.held):
        for blob in _data(each):
            is_kept = blob in each.barrier(TABLET, DATA).keep and blob >= min(created, default=blob)
            if blob not in created and not is_kept:
                return f"I19: no entry that counts speaks of {blob}, and a new leader leaves it on member {number}"
    # The leader makes a snapshot that takes the place of everything, as a running tablet does, and collects again.
    ledger, blobs = commit.form(leader.ledger, draft_of(leader, Kind.STATE, 0))
    own, before = {blob for blob, _ in blobs if blob.channel == DATA}, ledger
    for blob, data in blobs:
        if not isinstance(_put(model, members, blob, data), Stored):
            return f"I12: a successor that nothing disturbs can't store {blob}: it is below a barrier"
        ledger, _ = commit.stored(ledger, blob)
    assert leader.collecting is not None
    known = collecting.heard(leader.collecting, before, ledger)
    sync = commit.sync_entry(ledger)
    assert sync is not None
    if not isinstance(_put(model, members, *sync), Stored):
        return f"I17: a successor that nothing disturbs can't store {sync[0]}"
    _collected(model, members, Leader(commit.synced(ledger, sync[0], ledger.snapshot), known))
    for number, each in enumerate(members.held):
        rest = [blob for blob in _data(each) if blob not in own]
        if rest:
            return f"I19: {rest[0]} is not needed, and a leader that made a snapshot leaves it on member {number}"
    return None


def _collected(model: Model, members: Undisturbed, leader: Leader) -> Leader:
    """Let a leader collect what it may."""
    assert leader.collecting is not None
    known, commands = collecting.next_commands(leader.collecting, leader.ledger, (DATA,))
    result = members.run(collecting.send(model.channels, known.taken_everywhere, commands))
    assert result is not None
    return Leader(leader.ledger, collecting.sent(known, commands, result))


def _put(model: Model, members: Undisturbed, blob: BlobId, data: bytes) -> object:
    return members.do(Put(model.channels.group(blob.channel, blob.generation), blob, data))


def _data(held: Holdings) -> list[BlobId]:
    return [blob for blob in held.names if blob.channel == DATA]
