"""Order on a connection while entries are on their way: what a client hears, and when."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from replitree.keeper.core.batch import Batch
from replitree.keeper.core.front import Front
from replitree.keeper.core.state import State
from replitree.keeper.core.wire import Op, take_frame
from tests.keeper.frames import CLOSE, PING, auth_body, create_body, handshake, request, set_body, text, watched
from tests.keeper.memory import LIMITS, begun

SECOND_NS = 10**9


@dataclass
class Slow:
    """A front whose batches are committed when the test says so."""

    state: State = field(default_factory=begun)
    generation: int = 1
    batches: list[Batch] = field(default_factory=list)
    heard: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    responses: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.front = Front(self.state, self.generation, LIMITS, 0)

    def send(self, connection: int, data: bytes, now_ns: int = 0) -> None:
        self.front.received(connection, data, now_ns)

    def store(self) -> None:
        """Put what has come into an entry."""
        batch = self.front.take_batch(1_000)
        assert batch is not None
        self.batches.append(batch)

    def commit(self) -> None:
        """Commit the oldest entry."""
        self.front.committed(self.batches.pop(0))

    def turn(self) -> None:
        self.store()
        self.commit()

    def opened(self, session: int = 0, password: bytes = bytes(16)) -> int:
        connection = self.front.connected("127.0.0.1")
        self.send(connection, handshake(session, password))
        if session == 0:
            self.turn()
        self.take(connection)
        return connection

    def take(self, connection: int) -> list[tuple[int, int, int]]:
        """Return xid, zxid without its generation, and code of what a client has heard since."""
        for output in self.front.take_output():
            data = bytearray(output.data)
            while (frame := take_frame(data)) is not None:
                if output.connection not in self.responses:
                    self.responses[output.connection] = frame
                    continue
                xid, zxid, code = struct.unpack_from(">iqi", frame)
                self.heard.setdefault(output.connection, []).append((xid, zxid & 0xFFFFFFFF, code))
            if output.is_closed:
                self.closed.add(output.connection)
        return self.heard.pop(connection, [])

    def credentials(self, connection: int) -> tuple[int, bytes]:
        frame = self.responses[connection]
        return int.from_bytes(frame[8:16], "big"), frame[20:36]


def creation(xid: int, path: str) -> bytes:
    return request(xid, Op.CREATE, create_body(path))


def look(xid: int, path: str = "/", *, watch: bool = False) -> bytes:
    return request(xid, Op.EXISTS, watched(path, watch=watch))


def test_nothing_is_answered_before_its_entry_is_committed() -> None:
    slow = Slow()
    connection = slow.front.connected("127.0.0.1")
    slow.send(connection, handshake() + creation(1, "/a"))
    slow.store()
    assert slow.front.take_output() == []
    slow.commit()
    assert slow.take(connection) == []
    assert slow.responses[connection]
    slow.store()
    assert slow.take(connection) == []
    slow.commit()
    assert slow.take(connection) == [(1, 2, 0)]


def test_a_read_waits_for_the_write_before_it_and_others_do_not() -> None:
    slow = Slow()
    one, two = slow.opened(), slow.opened()
    slow.send(one, creation(1, "/a") + look(2, "/a"))
    slow.send(two, look(1, "/a"))
    assert (slow.take(one), slow.take(two)) == ([], [(1, 2, -101)])
    slow.turn()
    assert slow.take(one) == [(1, 3, 0), (2, 3, 0)]


def test_a_read_sees_the_state_right_after_the_write_before_it() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a") + look(2, "/b") + creation(3, "/b") + look(4, "/b"))
    slow.turn()
    assert slow.take(one) == [(1, 2, 0), (2, 2, -101), (3, 3, 0), (4, 3, 0)]


def test_a_refusal_waits_for_the_requests_before_it() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a") + request(2, 999))
    assert slow.take(one) == []
    assert one not in slow.closed
    slow.turn()
    assert slow.take(one) == [(1, 2, 0), (2, 0xFFFFFFFF, -6)]
    assert one in slow.closed


def test_sync_waits_for_everything_that_was_sent_before_it_by_any_connection() -> None:
    slow = Slow()
    one, two = slow.opened(), slow.opened()
    slow.send(one, creation(1, "/a"))
    slow.store()
    slow.send(two, request(1, Op.SYNC, text("/")) + look(2, "/a"))
    assert slow.take(two) == []
    slow.commit()
    assert slow.take(two) == [(1, 3, 0), (2, 3, 0)]


def test_a_read_behind_a_sync_does_not_see_the_later_write_of_its_own_connection() -> None:
    slow = Slow()
    one, two = slow.opened(), slow.opened()
    slow.send(one, creation(1, "/a"))
    slow.send(two, request(1, Op.SYNC, text("/")) + look(2, "/b") + creation(3, "/b"))
    slow.turn()
    assert slow.take(two) == [(1, 3, 0), (2, 3, -101), (3, 4, 0)]


def test_events_of_a_batch_come_between_its_replies_in_the_order_of_zxids() -> None:
    slow = Slow()
    one, two = slow.opened(), slow.opened()
    slow.send(one, look(1, "/a", watch=True) + look(2, "/b", watch=True))
    slow.send(one, creation(3, "/c"))
    slow.send(two, creation(1, "/a"))
    slow.send(one, creation(4, "/d"))
    slow.send(two, creation(2, "/b"))
    slow.turn()
    assert slow.take(one)[2:] == [(3, 3, 0), (-1, 4, 0), (4, 5, 0), (-1, 6, 0)]


def test_answers_go_to_the_connection_of_the_request_and_never_to_another_with_the_same_xid() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a"))
    slow.store()
    two = slow.opened(*slow.credentials(one))
    slow.send(two, creation(1, "/b"))
    slow.store()
    slow.commit()
    assert slow.take(two) == []
    assert one in slow.closed
    slow.commit()
    assert slow.take(two) == [(1, 3, 0)]
    assert b"/a" in slow.state.nodes


def test_what_a_moved_connection_had_sent_and_is_in_no_entry_is_dropped_and_nothing_hangs() -> None:
    slow = Slow()
    one, other = slow.opened(), slow.opened()
    slow.send(one, creation(1, "/a"))
    slow.send(other, request(1, Op.SYNC, text("/")))
    two = slow.opened(*slow.credentials(one))
    slow.send(two, creation(1, "/b"))
    slow.turn()
    assert b"/a" not in slow.state.nodes
    assert slow.take(two) == [(1, 3, 0)]
    assert slow.take(other) == [(1, 3, 0)]


def test_what_a_client_sent_before_it_disconnected_takes_effect() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a") + CLOSE)
    slow.front.disconnected(one)
    slow.turn()
    assert b"/a" in slow.state.nodes
    assert slow.state.sessions == {}


def test_authentication_counts_for_later_requests_while_earlier_ones_wait() -> None:
    slow = Slow()
    one = slow.opened()
    acl = struct.pack(">ii", 1, 31) + text("auth") + text("")
    refused = request(1, Op.CREATE, create_body("/a", acl=acl))
    slow.send(
        one,
        refused + request(-4, Op.AUTH, auth_body("digest", b"u:p")) + request(2, Op.CREATE, create_body("/b", acl=acl)),
    )
    slow.turn()
    assert slow.take(one) == [(1, 2, -114), (-4, 0, 0), (2, 3, 0)]


def test_expired_is_said_only_when_the_end_is_committed() -> None:
    slow = Slow()
    one = slow.opened()
    session, password = slow.credentials(one)
    slow.front.tick(60 * SECOND_NS)
    again = slow.front.connected("127.0.0.1")
    slow.send(again, handshake(session, password), 60 * SECOND_NS)
    slow.store()
    assert slow.take(again) == []
    assert again not in slow.responses
    assert one in slow.closed
    slow.commit()
    slow.take(again)
    assert slow.responses[again][4:16] == bytes(12)
    assert again in slow.closed


def test_a_resume_of_a_session_that_is_being_closed_waits_for_the_close() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, CLOSE)
    again = slow.front.connected("127.0.0.1")
    slow.send(again, handshake(*slow.credentials(one)))
    assert slow.take(one) == []
    assert again not in slow.responses
    slow.turn()
    assert slow.take(one) == [(0, 2, 0)]
    assert slow.responses[again][4:16] == bytes(12)


def test_a_successor_gives_every_session_its_full_timeout_and_keeps_its_nodes() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, request(1, Op.CREATE, create_body("/e", flags=1)))
    slow.turn()
    later = Slow(begun(2, slow.state), 2)
    later.front = Front(later.state, 2, LIMITS, 100 * SECOND_NS)
    later.front.tick(130 * SECOND_NS)
    assert later.front.take_batch(0) is None
    again = later.front.connected("127.0.0.1")
    later.send(again, handshake(*slow.credentials(one)), 130 * SECOND_NS)
    later.send(again, PING, 130 * SECOND_NS)
    assert later.take(again)[0][0] == -2
    assert b"/e" in later.state.nodes
    later.front.tick(161 * SECOND_NS)
    later.turn()
    assert b"/e" not in later.state.nodes


def test_zxids_grow_over_generations() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a"))
    slow.turn()
    before = slow.state.zxid
    later = Slow(begun(2, slow.state), 2)
    assert later.state.zxid > before


def test_a_session_whose_client_left_before_it_was_opened_ends_by_its_timeout() -> None:
    slow = Slow()
    connection = slow.front.connected("127.0.0.1")
    slow.send(connection, handshake())
    slow.front.disconnected(connection)
    slow.turn()
    assert len(slow.state.sessions) == 1
    slow.front.tick(61 * SECOND_NS)
    slow.turn()
    assert slow.state.sessions == {}


def test_a_leader_that_may_answer_no_longer_closes_all_and_answers_nothing() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, creation(1, "/a") + look(2))
    slow.store()
    slow.front.close_all()
    slow.commit()
    assert slow.take(one) == []
    assert one in slow.closed


def test_requests_that_wait_are_counted_for_the_limits_of_the_server() -> None:
    slow = Slow()
    one = slow.opened()
    slow.send(one, request(1, Op.SET_DATA, set_body("/", b"x" * 100)) + look(2))
    count, size = slow.front.unanswered(one)
    assert count == 2
    assert size > 100
    slow.turn()
    assert slow.front.unanswered(one) == (0, 0)
