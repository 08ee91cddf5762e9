"""Facts of reads and watches (verified on ZooKeeper 3.9.5)."""

from __future__ import annotations

import pytest

from replitree.keeper.core.wire import Code, Op, int_bytes
from tests.keeper.client import CHANGED, CHILDREN, CREATED, DELETED, Client, Event, Reply
from tests.keeper.frames import (
    acl_bytes,
    auth_body,
    create_body,
    multi_body,
    request,
    set_body,
    set_watches_body,
    text,
    watched,
)
from tests.keeper.memory import MemoryKeeper

ONLY_U = acl_bytes((31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="))


# --- reads ---------------------------------------------------------------------------------------------------------------


def test_reads_do_not_validate_paths(client: Client) -> None:
    client.create("/a")
    assert [client.get(path).code for path in ("/a/", "a", "/a//", "/..", "/\x01")] == [Code.NO_NODE] * 5
    assert client.exists("/a\x00").code == Code.BAD_ARGUMENTS


def test_sync_is_answered_with_the_path_whether_the_node_exists_or_not(client: Client) -> None:
    assert client.call(Op.SYNC, text("/none")).record == text("/none")


def test_get_children2_has_the_stat(client: Client) -> None:
    client.create("/a")
    reply = client.call(Op.GET_CHILDREN2, watched("/"))
    assert reply.stat == client.exists("/").stat
    assert b"zookeeper" in reply.record


def test_multi_read_has_errors_of_its_parts_and_none_of_its_own(client: Client) -> None:
    body = multi_body((Op.GET_DATA, watched("/none")), (Op.GET_CHILDREN, watched("/zookeeper/config")))
    reply = client.call(Op.MULTI_READ, body)
    missing = int_bytes(-1) + b"\0" + int_bytes(Code.NO_NODE) + int_bytes(Code.NO_NODE)
    empty = int_bytes(Op.GET_CHILDREN) + b"\0" + int_bytes(0) + int_bytes(0)
    assert (reply.code, reply.record) == (0, missing + empty + int_bytes(-1) + b"\1" + int_bytes(-1))


def test_parts_of_a_multi_read_set_no_watches(client: Client, other: Client) -> None:
    client.create("/a")
    body = multi_body((Op.GET_DATA, watched("/a", watch=True)), (Op.GET_CHILDREN, watched("/a", watch=True)))
    assert client.call(Op.MULTI_READ, body).code == 0
    other.set("/a")
    other.create("/a/b")
    assert client.events() == []


def test_ephemeral_nodes_of_the_session_in_the_order_of_their_creation(client: Client, other: Client) -> None:
    other.create("/x", flags=1)
    client.create("/p")
    for name in ("c", "a", "b"):
        client.create(f"/p/{name}", flags=1)
    every = int_bytes(3) + text("/p/c") + text("/p/a") + text("/p/b")
    assert [client.call(Op.GET_EPHEMERALS, text(prefix)).record for prefix in ("", "/", None)] == [every] * 3
    assert client.call(Op.GET_EPHEMERALS, text("/p/a")).record == int_bytes(1) + text("/p/a")


def test_number_of_all_descendants(client: Client) -> None:
    client.create("/a")
    client.create("/a/b")
    client.create("/a/b/c")
    assert [client.call(Op.GET_ALL_CHILDREN_NUMBER, text(path)).record for path in ("/a", "/")] == [
        int_bytes(2),
        int_bytes(6),
    ]


def test_who_am_i_shows_the_address_and_of_digests_the_user_only(client: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    assert client.call(Op.WHO_AM_I).record == int_bytes(2) + text("ip") + text("127.0.0.1") + text("digest") + text("u")


# --- standard watches ----------------------------------------------------------------------------------------------------


def test_data_watches_fire_once_for_creation_change_and_deletion(client: Client, other: Client) -> None:
    for change, kind in ((other.create, CREATED), (other.set, CHANGED), (other.delete, DELETED)):
        client.exists("/a", watch=True)
        change("/a")
        assert client.events() == [(kind, "/a")]
    other.create("/a")
    assert client.events() == []


def test_child_watches_fire_for_children_and_for_the_end_and_not_for_data(client: Client, other: Client) -> None:
    client.create("/a")
    client.children("/a", watch=True)
    other.set("/a")
    other.create("/a/b")
    client.children("/a", watch=True)
    other.set("/a/b")
    other.delete("/a/b")
    client.children("/a", watch=True)
    other.delete("/a")
    assert client.events() == [(CHILDREN, "/a"), (CHILDREN, "/a"), (DELETED, "/a")]


def test_who_watches_data_and_children_hears_of_the_end_once_and_both_watches_are_over(
    client: Client, other: Client
) -> None:
    client.create("/a")
    client.get("/a", watch=True)
    client.children("/a", watch=True)
    client.children("/", watch=True)
    other.delete("/a")
    assert client.events() == [(DELETED, "/a"), (CHILDREN, "/")]
    assert client.keeper.front.watches.children.size == client.keeper.front.watches.data.size == (0, 0, 0)


def test_a_watch_is_set_only_if_the_read_succeeds_but_for_exists(client: Client, other: Client) -> None:
    for op in (Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2):
        client.call(op, watched("/a", watch=True))
    other.create("/a")
    assert client.events() == []
    client.exists("/b", watch=True)
    other.create("/b")
    assert client.events() == [(CREATED, "/b")]


def test_several_watches_on_one_path_by_several_clients_all_fire(
    keeper: MemoryKeeper, client: Client, other: Client
) -> None:
    for each in (client, client, other):
        each.exists("/a", watch=True)
    Client(keeper).create("/a")
    assert client.events() == other.events() == [(CREATED, "/a")]


def test_a_value_that_changes_and_changes_back_fires(client: Client, other: Client) -> None:
    client.create("/a", b"A")
    client.get("/a", watch=True)
    other.set("/a", b"A")
    assert client.events() == [(CHANGED, "/a")]


def test_changes_of_an_acl_and_what_was_refused_fire_nothing(client: Client) -> None:
    client.create("/a")
    client.get("/a", watch=True)
    client.call(Op.SET_ACL, text("/a") + acl_bytes((31, "world", "anyone"), (1, "ip", "1.1.1.1")) + int_bytes(-1))
    client.set("/a", version=77)
    failing = multi_body((Op.SET_DATA, set_body("/a", b"x")), (Op.SET_DATA, set_body("/none", b"x")))
    client.call(Op.MULTI, failing)
    assert client.events() == []


def test_events_of_a_multi_come_before_its_reply_in_order_and_a_watch_fires_for_the_first(client: Client) -> None:
    client.exists("/m", watch=True)
    client.children("/", watch=True)
    body = multi_body((Op.CREATE, create_body("/m")), (Op.SET_DATA, set_body("/m", b"z")))
    client.send(request(9, Op.MULTI, body))
    created, child, reply = client.take()
    assert isinstance(reply, Reply)
    assert reply.xid == 9
    assert (created, child) == (Event(reply.zxid, CREATED, "/m"), Event(reply.zxid, CHILDREN, "/"))


def test_an_event_comes_before_the_reply_of_the_request_that_fired_it(client: Client) -> None:
    client.create("/a")
    pipelined = request(1, Op.GET_DATA, watched("/a", watch=True)) + request(2, Op.SET_DATA, set_body("/a", b"1"))
    client.send(pipelined + request(3, Op.GET_DATA, watched("/a")))
    watch, event, change, read = client.take()
    assert isinstance(event, Event)
    assert isinstance(change, Reply)
    assert isinstance(read, Reply)
    assert isinstance(watch, Reply)
    assert (watch.xid, change.xid, read.xid) == (1, 2, 3)
    assert event.zxid == change.zxid == read.zxid


def test_the_end_of_a_session_fires_for_each_of_its_nodes_in_the_order_of_creation(
    client: Client, other: Client
) -> None:
    client.create("/p")
    for name in ("3", "1", "2"):
        other.create(f"/p/{name}", flags=1)
        client.exists(f"/p/{name}", watch=True)
    client.children("/p", watch=True)
    other.close()
    events = [each for each in client.take() if isinstance(each, Event)]
    assert [(each.kind, each.path) for each in events] == [
        (DELETED, "/p/3"),
        (CHILDREN, "/p"),
        (DELETED, "/p/1"),
        (DELETED, "/p/2"),
    ]
    assert len({each.zxid for each in events}) == 1


def test_events_go_only_to_those_who_may_read(client: Client, other: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    assert other.exists("/a", watch=True).code == Code.NO_NODE
    assert other.add_watch("/a", 1).code == 0
    client.exists("/a", watch=True)
    client.create("/a", acl=ONLY_U)
    client.set("/a")
    client.delete("/a")
    assert other.events() == []
    assert client.events() == [(CREATED, "/a")]


# --- watches that stay ---------------------------------------------------------------------------------------------------


def test_add_watch_is_answered_with_four_bytes_and_needs_no_node(client: Client) -> None:
    assert client.add_watch("/none", 0).record == client.add_watch("/none", 1).record == int_bytes(0)
    assert client.add_watch("/none", 2).code == Code.MARSHALLING_ERROR


def test_persistent_watches_fire_for_data_and_children_again_and_again(client: Client, other: Client) -> None:
    client.add_watch("/a", 0)
    other.create("/a")
    for _ in range(2):
        other.set("/a")
    other.create("/a/b")
    other.set("/a/b")
    other.delete("/a/b")
    other.delete("/a")
    kinds = [CREATED, CHANGED, CHANGED, CHILDREN, CHILDREN, DELETED]
    assert client.events() == [(kind, "/a") for kind in kinds]


def test_recursive_watches_name_the_node_that_changed_and_never_tell_of_children(client: Client, other: Client) -> None:
    other.create("/a")
    client.add_watch("/a", 1)
    other.create("/a/b")
    other.create("/a/b/c")
    other.set("/a/b")
    other.set("/a")
    other.delete("/a/b/c")
    other.create("/ab")
    assert client.events() == [
        (CREATED, "/a/b"),
        (CREATED, "/a/b/c"),
        (CHANGED, "/a/b"),
        (CHANGED, "/a"),
        (DELETED, "/a/b/c"),
    ]


def test_a_watcher_hears_of_a_change_once_for_each_table_however_many_modes_it_has(
    client: Client, other: Client
) -> None:
    client.create("/a")
    client.add_watch("/a", 0)
    client.add_watch("/a", 1)
    client.get("/a", watch=True)
    other.set("/a")
    assert client.events() == [(CHANGED, "/a")]
    other.create("/a/b")
    assert client.events() == [(CREATED, "/a/b"), (CHILDREN, "/a")]


@pytest.mark.parametrize(
    ("kind", "left"),
    [(1, [CHANGED, CHILDREN]), (2, [CHANGED, CHILDREN]), (3, []), (4, [CHANGED, CHILDREN]), (5, [CHANGED, CHILDREN])],
)
def test_removal_of_one_kind_leaves_the_others(client: Client, other: Client, kind: int, left: list[int]) -> None:
    client.create("/a")
    client.get("/a", watch=True)
    client.children("/a", watch=True)
    client.add_watch("/a", 0)
    client.add_watch("/a", 1)
    body = text("/a") + int_bytes(kind)
    assert client.call(Op.CHECK_WATCHES, body).code == 0
    removed = client.call(Op.REMOVE_WATCHES, body)
    assert (removed.code, removed.record) == (0, b"")
    assert client.call(Op.CHECK_WATCHES, body).code == Code.NO_WATCHER
    other.set("/a")
    other.create("/a/b")
    assert [kind for kind, path in client.events() if path == "/a"] == left


def test_kinds_of_watches_that_do_not_exist_are_refused(client: Client) -> None:
    for op in (Op.CHECK_WATCHES, Op.REMOVE_WATCHES):
        assert client.call(op, text("/a") + int_bytes(9)).code == Code.MARSHALLING_ERROR
        assert client.call(op, text("/a") + int_bytes(3)).code == Code.NO_WATCHER


# --- watches that are set again ------------------------------------------------------------------------------------------


def test_what_was_missed_is_an_event_with_zxid_minus_one_before_the_reply(client: Client, other: Client) -> None:
    for path in ("/same", "/changed", "/gone", "/parent"):
        other.create(path)
    seen = client.ping().zxid
    other.set("/changed")
    other.delete("/gone")
    other.create("/parent/a")
    other.create("/new")
    vectors = (["/same", "/changed", "/gone"], ["/new", "/never"], ["/same", "/parent", "/gone"])
    client.send(request(-8, Op.SET_WATCHES, set_watches_body(seen, *vectors)))
    *events, reply = client.take()
    assert events == [
        Event(-1, CHANGED, "/changed"),
        Event(-1, DELETED, "/gone"),
        Event(-1, CREATED, "/new"),
        Event(-1, CHILDREN, "/parent"),
        Event(-1, DELETED, "/gone"),
    ]
    assert isinstance(reply, Reply)
    assert (reply.xid, reply.code, reply.record) == (-8, 0, b"")
    other.set("/same")
    other.create("/same/a")
    other.create("/never")
    assert client.events() == [(CHANGED, "/same"), (CHILDREN, "/same"), (CREATED, "/never")]


def test_a_change_that_was_seen_is_not_reported_again(client: Client) -> None:
    zxid = client.create("/a").zxid
    client.call(Op.SET_WATCHES, set_watches_body(zxid, ["/a"], [], ["/a"]), xid=-8)
    assert client.events() == []


def test_watches_that_stay_are_set_again_and_nothing_is_derived(client: Client, other: Client) -> None:
    client.call(Op.SET_WATCHES2, set_watches_body(0, [], [], [], ["/p"], ["/r"]), xid=-8)
    for path in ("/p", "/p/a", "/r", "/r/a"):
        other.create(path)
    assert client.events() == [(CREATED, "/p"), (CHILDREN, "/p"), (CREATED, "/r"), (CREATED, "/r/a")]


def test_derived_events_need_permission_to_read(client: Client, other: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    client.create("/a", acl=ONLY_U)
    for each, heard in ((other, []), (client, [(CHANGED, "/a"), (CREATED, "/a")])):
        each.call(Op.SET_WATCHES, set_watches_body(0, ["/a"], ["/a"], []), xid=-8)
        assert each.events() == heard


def test_set_watches_that_is_cut_short_sets_none(client: Client, other: Client) -> None:
    body = set_watches_body(2**62, ["/a"], [], [])[:-2]
    client.create("/a")
    assert client.call(Op.SET_WATCHES, body, xid=-8).code == Code.MARSHALLING_ERROR
    other.set("/a")
    assert client.events() == []


@pytest.mark.parametrize("end", ["disconnects", "closes", "resumes"])
def test_nothing_is_left_of_the_watches_of_a_connection_that_is_gone(
    keeper: MemoryKeeper, client: Client, end: str
) -> None:
    for path in ("/", "/zookeeper"):
        client.get(path, watch=True)
        client.children(path, watch=True)
        client.add_watch(path, 0)
        client.add_watch(path, 1)
    if end == "disconnects":
        keeper.front.disconnected(client.connection)
    elif end == "closes":
        client.close()
    else:
        client.again()
    watches = keeper.front.watches
    assert watches.data.size == watches.children.size == (0, 0, 0)
    assert watches.data.fire(b"/zookeeper/a") == []
