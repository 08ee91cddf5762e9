"""The search of a model of joint inserts, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, SettleEntry, Verdict, quorum_of
from replitree.protocol.core.joint_tokens import decode_token
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.streams import NO_BATCH, decode_stream
from replitree.protocol.sharded.joint_insert import JointInserted
from replitree.protocol.state.counted import decode_quorum
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.joint import stored
from replitree_verify.joint.logs import PLACE, SHARDS, gets_of, number_of, verdicts_of
from replitree_verify.joint.model import Model
from replitree_verify.joint.space import STREAM_NODE, Space
from replitree_verify.joint.state import JointState
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def violations(state: JointState) -> Iterator[str]:
        yield from wrong(model, state)

    def wrong_step(state: JointState, happened: str, after: JointState, is_new: bool) -> str | None:
        del happened, is_new
        return None if after.tree is state.tree else wrong_to_come(model, state, after) or wrongly_cleaned(state, after)

    def left_wrong(state: JointState) -> Iterator[str]:
        yield from wrong_at_rest(state)
        yield from stored.wrong_at_rest(state.tree, state.objects)

    rules = Rules(always=violations, at_rest=left_wrong, step=wrong_step)
    found = search_all(space, rules, mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(model: Model, state: JointState) -> Iterator[str]:
    """Give what does not hold in a state."""
    gets = gets_of(state.tree)
    entries = Counter(entry.joint for _, _, entry in gets)
    shards = {entry.joint: {shard for shard, _, each in gets if each.joint == entry.joint} for _, _, entry in gets}
    # First: a coordinator removes what it believes to be refused, which breaks J3 in the same step.
    yield from wrong_answers(model, state)
    for _, _, entry in gets:
        if (entry.replica, entry.insert) not in state.folders:
            yield f"J3: the files of {entry.insert} are gone"
    if model.tidies:
        yield from stored.wrong(state.tree, state.objects)
    for _, _, entry in gets:
        if not entries[entry.joint] == len(shards[entry.joint]) == entry.shards:
            yield f"J1: {entry.joint} has {entries[entry.joint]} entries in {len(shards[entry.joint])} shards"
    for token in {token for joint in model.inserts for token in joint.tokens}:
        failed = {entry.insert for _, entry in verdicts_of(state.tree) if isinstance(entry, FailEntry)}
        its = (entry for _, _, entry in gets if token in model.inserts[number_of(entry.insert)].tokens)
        applied = {entry.joint for entry in its if entry.insert not in failed}
        if len(applied) > 1 and not state.forgotten and not state.judged:
            yield f"D4: {token} is applied as {sorted(map(str, applied))}"
    yield from wrong_streams(model, state)
    yield from wrong_ends(state)


def wrong_answers(model: Model, state: JointState) -> Iterator[str]:
    """Give what clients were told wrongly."""
    gets = gets_of(state.tree)
    shards = {entry.joint: {shard for shard, _, each in gets if each.joint == entry.joint} for _, _, entry in gets}
    failed = {entry.insert for _, entry in verdicts_of(state.tree) if isinstance(entry, FailEntry)}
    # Of an insert whose quorum was given up, the client may hear from the next process that nothing was inserted.
    taken_back = {entry.joint for _, _, entry in gets if entry.insert in failed}
    for number, sent in enumerate(state.sent):
        for joint in sent.refused:
            if joint in shards and joint not in taken_back:
                yield f"J4: {joint} is refused, and in the log"
        if sent.is_early:
            yield f"J4: insert {number} is told that it counts, and its quorum was not reached"
        if not isinstance(sent.told, JointInserted):
            continue
        # Of a batch whose token is forgotten the stream says that it is in the table, and not by which insert.
        if (
            not sent.told.joint
            and sent.told.is_duplicate
            and (state.forgotten or state.judged)
            and model.inserts[number].batch is not None
        ):
            continue
        # A client is told of a duplicate exactly when another insert had its token; one that has asked again, always.
        is_own = sent.told.joint.partition(".")[0] == str(number) and sent.lost is None
        if len(shards.get(sent.told.joint, ())) < len(SHARDS) or is_own == sent.told.is_duplicate:
            yield f"J4: insert {number} is told {sent.told}"
            continue
        # A batch is a duplicate of one that its own query has sent, of the same number or a later one.
        own, its = model.inserts[number].batch, model.inserts[int(sent.told.joint.partition(".")[0])].batch
        is_its = own is None or its is None or (own.of.query == its.of.query and own.of.batch <= its.of.batch)
        if not is_its:
            yield f"J4: batch {number} is told that it is {sent.told.joint}"


def wrong_streams(model: Model, state: JointState) -> Iterator[str]:
    """Give what is wrong with the stream of a model and its batches."""
    failed = {entry.insert for _, entry in verdicts_of(state.tree) if isinstance(entry, FailEntry)}
    gets = tuple(entry for shard, _, entry in gets_of(state.tree) if not shard)
    # A stream that was forgotten begins anew.
    found = ((entry, model.inserts[number_of(entry.insert)].batch) for entry in gets[state.before :])
    batches = tuple((entry, batch) for entry, batch in found if batch is not None and entry.insert not in failed)
    for (_, before), (entry, batch) in pairwise(batches):
        is_taken_over = batch.takes_over and batch.of.query != before.of.query
        if batch.of.batch <= before.of.batch and not is_taken_over:
            yield f"S1: {entry.joint} comes as batch {batch.of.batch} behind batch {before.of.batch}"
    node = state.tree.get(STREAM_NODE)
    value = None if node is None else decode_stream(node.value, STREAM_NODE)
    if value is not None and value.insert in {str(entry.joint) for entry in gets if entry.insert in failed}:
        # Nothing has set the stream back yet; what stood before is what it is read as.
        value = None if value.before is UNSET else value.before
    if value is not None and value.batch == NO_BATCH:
        value = None
    named = None if value is None else (value.query, value.batch)
    last = (batches[-1][1].of.query, batches[-1][1].of.batch) if batches else None
    own = str(batches[-1][0].joint) if batches else None
    if named != last or (value is not None and value.insert != own):
        yield f"S2: the stream names {value}, and the logs have {last} last"


def wrong_to_come(model: Model, state: JointState, after: JointState) -> str | None:
    """Return what is wrong with the entries that come in a step."""
    known = {(shard, index) for shard, index, _ in gets_of(state.tree)}
    version = state.tree.get(layout.shard_map(PLACE))
    assert version is not None
    for shard, index, entry in gets_of(after.tree):
        if (shard, index) in known:
            continue
        # The coordinator commits through its own session, so only the other replica can be without one.
        is_own = model.is_one_process or model.inserts[number_of(entry.insert)].coordinator == entry.replica
        if not is_own and not state.tree.exists(layout.is_active(Replica(SHARDS[shard], entry.replica))):
            return f"J5: {entry.insert} comes, and {entry.replica} has no session"
        # In the place of a content hash the rows carry the version of the map by which they were split.
        if any(part.content_hash.partition("@")[2] != str(version.version) for part in entry.parts):
            return f"D6: {entry.insert} comes under map {version.version}"
    return None


def wrongly_cleaned(state: JointState, after: JointState) -> str | None:
    """Return which token has gone in a step although its insert has neither failed nor was it found too old."""
    failed = {entry.insert for _, entry in verdicts_of(after.tree) if isinstance(entry, FailEntry)}
    judged = {(token, insert) for _, token, insert in state.judged}
    for name in state.tree.children(layout.joint_tokens(PLACE)) or ():
        path = layout.joint_token(PLACE, fx.BlockId(name))
        node = state.tree.get(path)
        if node is None or after.tree.get(path) is not None or state.forgotten != after.forgotten:
            continue
        insert = decode_token(node.value, path).inserts[0].insert
        if insert not in failed and (name, insert) not in judged:
            return f"TOKENS: {name} of {insert} is removed"
    return None


def wrong_ends(state: JointState) -> Iterator[str]:
    """Give what is wrong with the ends of quorums."""
    gets = {entry.insert: entry for _, _, entry in gets_of(state.tree)}
    ends: dict[object, list[Verdict]] = {}
    for _, end in verdicts_of(state.tree):
        ends.setdefault(gets[end.insert].joint, []).append(end)
        if isinstance(end, SettleEntry) and len(end.holders) < quorum_of(gets[end.insert]):
            yield f"J2: {end.insert} settles with {end.holders}"
    for joint, its in ends.items():
        # One kind of end, in each of the shards, and in none of them twice.
        if (
            len({type(end) for end in its}) > 1
            or len({end.insert for end in its}) != len(SHARDS)
            or len(its) != len(SHARDS)
        ):
            yield f"J2: {joint} ends as {its}"
    for name in state.tree.children(layout.joint_tokens(PLACE)) or ():
        path = layout.joint_token(PLACE, fx.BlockId(name))
        node = state.tree.get(path)
        # The token is free once its insert has failed; another insert may have it by then.
        taken = None if node is None else decode_token(node.value, path).joint
        if any(isinstance(end, FailEntry) for end in ends.get(taken, ())):
            yield f"J2: {taken} has failed, and has its token"


def wrong_at_rest(state: JointState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    statuses = tuple((shard, layout.quorum_statuses(shard)) for shard in SHARDS)
    opened = tuple((path, name) for _, path in statuses for name in state.tree.children(path) or ())
    nodes = tuple((path, state.tree.get(f"{path}/{name}")) for path, name in opened)
    values = tuple(decode_quorum(node.value, path) for path, node in nodes if node is not None)
    for joint in {number_of(fx.StagingId(name)) for _, name in opened}:
        its = tuple(
            value for (_, name), value in zip(opened, values, strict=True) if number_of(fx.StagingId(name)) == joint
        )
        if all(len(value.replicas) >= value.quorum for value in its):
            yield f"J2: insert {joint} is complete, and open"
