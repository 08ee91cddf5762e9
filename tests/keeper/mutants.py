"""Mutants of the core: one change each that breaks an invariant, and the test that notices.

Invariants, by the numbers of the specification: K1 nothing is heard before its entry is committed; K2 reads are linearizable;
K3 one answer for each request, in order; K4 events before replies of their transaction; K5 a watch fires once, for the first
change; K6 zxids grow; K7 ephemeral nodes live as long as their sessions; K8 "expired" only of sessions that are gone; K9 no
session ends that was heard; K10 nothing of a closed session has an effect; K11 a multi is all or nothing; K12 sequential
numbers are dense; K14 a snapshot holds one moment; K16 apply never raises; K17 containers and times to live go when they
are due; K18 nothing is shown without permission; K19 nothing of a closed connection is left.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from textwrap import dedent, indent
from typing import NamedTuple

from replitree_verify.patches.patch import Hunk, Patch
from tests.keeper import test_apply, test_changing, test_connecting, test_front, test_watching


class Mutant(NamedTuple):
    """A change of the core, and what notices it."""

    name: str
    invariant: str
    module: str
    before: str
    after: str
    test: Callable[..., None]
    arguments: dict[str, object] = {}  # noqa: RUF012 - the fields of a named tuple have no factories

    def patch(self) -> Patch:
        """Return the change, with its lines as deep as the module has them."""
        module = f"replitree.keeper.core.{self.module}"
        lines = inspect.getsource(importlib.import_module(module)).splitlines()
        first = dedent(self.before).strip("\n").splitlines()[0]
        (depth,) = {len(line) - len(first) for line in lines if line.strip() == first}
        before, after = (
            tuple(indent(dedent(text).strip("\n"), " " * depth).splitlines()) for text in (self.before, self.after)
        )
        return Patch(self.name, self.name, "", self.invariant, (Hunk(module, before, after),))


def mutant_of(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(each for each in MUTANTS if each.name == name)


MUTANTS = (
    Mutant(
        "event-after-reply",
        "K4",
        "front",
        """
        for change in outcome.changes:
            for event in self.watches.fire(change):
                self._tell(event, outcome.zxid)
        self._settle(each, outcome)
        """,
        """
        self._settle(each, outcome)
        for change in outcome.changes:
            for event in self.watches.fire(change):
                self._tell(event, outcome.zxid)
        """,
        test_watching.test_an_event_comes_before_the_reply_of_the_request_that_fired_it,
    ),
    Mutant(
        "refusal-answered-before-its-predecessors-commit",
        "K1",
        "front",
        "slot.reply, slot.is_last = reply_bytes(xid, NO_ZXID, Code.UNIMPLEMENTED), True",
        """
        link.output.append(reply_bytes(xid, NO_ZXID, Code.UNIMPLEMENTED))
        self._close(link)
        return
        """,
        test_front.test_a_refusal_waits_for_the_requests_before_it,
    ),
    Mutant(
        "read-overtakes-own-write",
        "K2",
        "front",
        "link.slots.append(slot)",
        """
        if op in READS:
            link.output.append(self._answer(link, slot))
            return
        link.slots.append(slot)
        """,
        test_front.test_a_read_waits_for_the_write_before_it_and_others_do_not,
    ),
    Mutant(
        "sync-answered-at-once",
        "K2",
        "front",
        "slot.barrier = self._sent_frames + len(self._pending)",
        "slot.barrier = 0",
        test_front.test_sync_waits_for_everything_that_was_sent_before_it_by_any_connection,
    ),
    Mutant(
        "reads-of-a-batch-after-all-writes",
        "K2",
        "front",
        """
        if link is not None and slot is not None:
            slot.reply = outcome.reply
            self._answer_ready(link)
        """,
        """
        if link is not None and slot is not None:
            slot.reply = outcome.reply
            if self._applied_frames == self._sent_frames:
                self._answer_ready(link)
        """,
        test_front.test_a_read_sees_the_state_right_after_the_write_before_it,
    ),
    Mutant(
        "moved-connection-goes-on",
        "K3",
        "front",
        """
        self._drop_pending(older)
        self._close(older)
        """,
        "self._drop_pending(older)",
        test_connecting.test_resume_keeps_session_and_password_and_closes_the_older_connection,
    ),
    Mutant(
        "recursive-event-names-the-watched",
        "K5",
        "watches",
        "found |= dict.fromkeys(each for each, modes in self._paths.get(at, {}).items() if modes & RECURSIVE)",
        "found |= dict.fromkeys(each for each, modes in self._paths.get(at, {}).items() if modes & PERSISTENT)",
        test_watching.test_recursive_watches_name_the_node_that_changed_and_never_tell_of_children,
    ),
    Mutant(
        "setwatches-at-least-instead-of-greater",
        "K5",
        "reads",
        "return EventType.DATA_CHANGED if stat.mzxid > seen else None",
        "return EventType.DATA_CHANGED if stat.mzxid >= seen else None",
        test_watching.test_a_change_that_was_seen_is_not_reported_again,
    ),
    Mutant(
        "setwatches-forgets-exists",
        "K5",
        "reads",
        "return None if stat is None else EventType.CREATED",
        "return None",
        test_watching.test_what_was_missed_is_an_event_with_zxid_minus_one_before_the_reply,
    ),
    Mutant(
        "child-watch-fires-on-data",
        "K5",
        "watches",
        """
        if change.kind == EventType.DATA_CHANGED:
            return
        """,
        "",
        test_watching.test_child_watches_fire_for_children_and_for_the_end_and_not_for_data,
    ),
    Mutant(
        "standard-watch-stays",
        "K5",
        "watches",
        """
        for connection in found:
            self.remove(path, connection, STANDARD)
        """,
        "",
        test_watching.test_data_watches_fire_once_for_creation_change_and_deletion,
    ),
    Mutant(
        "watch-set-though-the-read-failed",
        "K5",
        "reads",
        """
        path, is_watched = body.text(), body.boolean()
        record = _readable(state, path, asker.identities)
        """,
        """
        path, is_watched = body.text(), body.boolean()
        watches.data.add(path, asker.connection, STANDARD)
        record = _readable(state, path, asker.identities)
        """,
        test_watching.test_a_watch_is_set_only_if_the_read_succeeds_but_for_exists,
    ),
    Mutant(
        "zxid-without-generation",
        "K6",
        "apply",
        "state.generation, state.requests, state.opened = batch.generation, 0, 0",
        "state.requests, state.opened = 0, 0",
        test_front.test_zxids_grow_over_generations,
    ),
    Mutant(
        "refused-writes-use-up-no-zxid",
        "K6",
        "apply",
        """
        except Refused as error:
            state.undo()
        """,
        """
        except Refused as error:
            state.undo()
            state.requests -= 1
        """,
        test_connecting.test_refused_writes_use_up_a_zxid,
    ),
    Mutant(
        "ephemerals-removed-in-a-second-entry",
        "K7",
        "apply",
        "return [tree.delete(state, path, state.zxid) for path in tree.ephemerals_of(state, session)]",
        "return []",
        test_watching.test_the_end_of_a_session_fires_for_each_of_its_nodes_in_the_order_of_creation,
    ),
    Mutant(
        "ephemeral-of-a-closed-session",
        "K10",
        "writes",
        """
        if request.session not in state.sessions:
            raise Refused(Code.SESSION_EXPIRED)
        """,
        "return",
        test_apply.test_requests_behind_the_close_of_their_session_in_one_batch_have_no_effect,
    ),
    Mutant(
        "close-only-in-memory",
        "K10",
        "apply",
        "state.put(state.sessions, session, None)",
        "assert session in state.sessions",
        test_apply.test_requests_behind_the_close_of_their_session_in_one_batch_have_no_effect,
    ),
    Mutant(
        "expired-said-when-sent",
        "K8",
        "front",
        """
        link.phase = Phase.WAITING
        self._resuming[link.number] = link
        """,
        "self._refuse(link)",
        test_front.test_expired_is_said_only_when_the_end_is_committed,
    ),
    Mutant(
        "password-not-looked-at",
        "K8",
        "sessions",
        'return hmac.compare_digest(password_of(secret, session), password or b"")',
        "return bool(password_of(secret, session))",
        test_connecting.test_refused_resume_is_told_that_the_session_is_gone,
        {"wrong": "password"},
    ),
    Mutant(
        "successor-counts-from-the-last-batch",
        "K9",
        "front",
        "self._silence = Silence(limits, state.sessions, now_ns)",
        "self._silence = Silence(limits, state.sessions, state.now_ms * 1_000_000)",
        test_front.test_a_successor_gives_every_session_its_full_timeout_and_keeps_its_nodes,
    ),
    Mutant(
        "bytes-do-not-touch",
        "K9",
        "front",
        """
        if link.phase is Phase.OPEN:
            self._silence.hear(link.session, link.timeout_ms, now_ns)
        """,
        "",
        test_connecting.test_a_client_that_sends_any_bytes_never_expires,
        {"what": b"\0"},
    ),
    Mutant(
        "multi-keeps-what-came-before-its-failure",
        "K11",
        "writes",
        """
        except Refused as error:
            state.undo()
        """,
        "except Refused as error:",
        test_changing.test_a_multi_that_fails_changes_nothing_and_names_the_operation,
    ),
    Mutant(
        "multi-keeps-the-digest",
        "K11",
        "state",
        "self.digest = self._settled_digest",
        "self._settled_digest = self.digest",
        test_changing.test_a_multi_that_fails_changes_nothing_and_names_the_operation,
    ),
    Mutant(
        "number-from-children",
        "K12",
        "tree",
        "state.put(state.counters, parent, int32(state.counters.get(parent, 0) + 1))",
        "state.put(state.counters, parent, len(state.children.get(parent, ())) + 1)",
        test_changing.test_numbers_are_dense_and_not_used_up_by_what_was_refused_or_deleted,
    ),
    Mutant(
        "snapshot-not-compared-with-its-digest",
        "K14",
        "snapshot",
        "if head is None or head.counts != [len(getattr(state, name)) for name in _TABLES] or head.digest != state.digest:",
        "if head is None:",
        test_apply.test_a_snapshot_that_lacks_a_piece_or_has_another_is_not_restored,
    ),
    Mutant(
        "own-errors-stop-the-log",
        "K16",
        "apply",
        'fault = f"{type(error).__name__}: {error}"',
        "raise",
        test_apply.test_an_error_of_ours_is_undone_answered_and_reported,
    ),
    Mutant(
        "own-errors-not-undone",
        "K16",
        "apply",
        """
        state.undo()
        fault = f"{type(error).__name__}: {error}"
        """,
        'fault = f"{type(error).__name__}: {error}"',
        test_apply.test_an_error_of_ours_is_undone_answered_and_reported,
    ),
    Mutant(
        "container-not-checked-again",
        "K17",
        "apply",
        "case Reap(path, czxid) if is_due(state, path, state.now_ms) and stat_of(state.nodes[path]).czxid == czxid:",
        "case Reap(path, czxid) if path in state.nodes and stat_of(state.nodes[path]).czxid == czxid:",
        test_changing.test_a_container_that_got_a_child_between_look_and_entry_stays,
    ),
    Mutant(
        "time-to-live-not-checked-again",
        "K17",
        "apply",
        "case Reap(path, czxid) if is_due(state, path, state.now_ms) and stat_of(state.nodes[path]).czxid == czxid:",
        "case Reap(path, czxid) if path in state.lifetimes and path not in state.children:",
        test_changing.test_time_to_live_counts_from_the_last_change_and_by_the_time_of_entries,
    ),
    Mutant(
        "derived-events-unchecked",
        "K18",
        "front",
        "if link is not None and permits(event.acl, acls.READ, link.identities):",
        "if link is not None and (zxid == NO_ZXID or permits(event.acl, acls.READ, link.identities)):",
        test_watching.test_derived_events_need_permission_to_read,
    ),
    Mutant(
        "events-unchecked",
        "K18",
        "front",
        "if link is not None and permits(event.acl, acls.READ, link.identities):",
        "if link is not None:",
        test_watching.test_events_go_only_to_those_who_may_read,
    ),
    Mutant(
        "watches-left-at-close",
        "K19",
        "front",
        "self.watches.forget(link.number)",
        "",
        test_watching.test_nothing_is_left_of_the_watches_of_a_connection_that_is_gone,
        {"end": "closes"},
    ),
)
