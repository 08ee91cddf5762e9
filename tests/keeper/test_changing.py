"""Facts of the requests that change the tree (verified on ZooKeeper 3.9.5)."""

from __future__ import annotations

import pytest

from replitree.keeper.core.acls import OPEN
from replitree.keeper.core.apply import due_nodes
from replitree.keeper.core.wire import Code, Op, int_bytes, stat_of
from tests.keeper.client import Client
from tests.keeper.frames import (
    acl_bytes,
    auth_body,
    create_body,
    create_ttl_body,
    multi_body,
    request,
    set_body,
    text,
    versioned,
    watched,
)
from tests.keeper.memory import MemoryKeeper

DIGEST = "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="
ONLY_U = acl_bytes((31, "digest", DIGEST))


def path_of(record: bytes) -> str:
    return record[4 : 4 + int.from_bytes(record[:4], "big")].decode()


def test_a_new_tree_has_the_nodes_of_zookeeper(client: Client) -> None:
    assert client.children("/") == ["zookeeper"]
    assert client.children("/zookeeper") == ["config", "quota"]
    assert client.exists("/").stat[:10] == (0, 0, 0, 0, 0, -1, 0, 0, 0, 1)
    assert client.get("").code == 0  # the empty path is the root
    config = client.call(Op.GET_ACL, text("/zookeeper/config"))
    assert config.record[:-68] == acl_bytes((1, "world", "anyone"))
    assert config.stat.aversion == -1


@pytest.mark.parametrize("flags", [-1, 7, 9, 5, 6])
def test_create_refuses_flags_that_it_does_not_know_and_those_of_times_to_live(client: Client, flags: int) -> None:
    assert client.create("/a", flags=flags).code == Code.BAD_ARGUMENTS


def test_create_with_the_flags_of_a_container_makes_a_persistent_node(client: Client) -> None:
    assert client.create("/a", flags=4).code == 0
    assert client.keeper.state.lifetimes == {}


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
def test_create_container_makes_a_container_whatever_the_flags(client: Client, flags: int) -> None:
    reply = client.create("/a", flags=flags, op=Op.CREATE_CONTAINER)
    assert (reply.code, reply.stat.owner) == (0, 0)
    assert list(client.keeper.state.lifetimes.values()) == [0]
    assert client.keeper.state.ephemerals == {}


def test_null_data_is_kept_as_null(client: Client) -> None:
    client.create("/a", None)
    assert client.get("/a").record[:4] == int_bytes(-1)
    assert client.exists("/a").stat.data_bytes == 0


@pytest.mark.parametrize(("ttl_ms", "code"), [(1, 0), (2**40 - 1, 0), (2**40, -8), (0, -8), (-1, -8)])
def test_create_ttl_bounds_the_time(client: Client, ttl_ms: int, code: int) -> None:
    assert client.call(Op.CREATE_TTL, create_ttl_body("/a", ttl_ms)).code == code


@pytest.mark.parametrize("flags", [0, 1, 4])
def test_create_ttl_with_other_flags_is_refused_and_the_server_lives(client: Client, flags: int) -> None:
    assert client.call(Op.CREATE_TTL, create_ttl_body("/a", -1, flags)).code == Code.BAD_ARGUMENTS
    assert client.create("/a").code == 0


def test_owner_of_ephemerals_is_served_but_not_of_containers_and_times_to_live(client: Client) -> None:
    client.create("/e", flags=1)
    client.call(Op.CREATE_TTL, create_ttl_body("/t", 5))
    assert (client.exists("/e").stat.owner, client.exists("/t").stat.owner) == (client.session, 0)


@pytest.mark.parametrize(
    "path",
    ["a", "", "/a/", "/a/..", "/a/.", "/a\x01", "/a\x7f", "/\ue000", "/\ufff0", "/\U0001f600", "/a\x00b", "/é\x85"],
)
def test_create_refuses_paths_that_are_not_valid(client: Client, path: str) -> None:
    client.create("/a")
    assert client.create(path).code == Code.BAD_ARGUMENTS


def test_create_refuses_text_that_is_not_utf_8(client: Client) -> None:
    assert client.call(Op.CREATE, create_body(b"/\xff\xfe")).code == Code.BAD_ARGUMENTS


def test_create_with_two_slashes_finds_no_parent(client: Client) -> None:
    client.create("/a")
    assert client.create("/a//b").code == Code.NO_NODE


def test_create_of_the_root_says_that_it_exists(client: Client) -> None:
    assert client.create("/").code == Code.NODE_EXISTS


def test_order_of_checks_of_create(client: Client, other: Client) -> None:
    no_acl = int_bytes(0)
    assert client.call(Op.CREATE, create_body("relative", b"", no_acl, 9)).code == Code.BAD_ARGUMENTS
    assert client.call(Op.CREATE, create_body("/none/a", b"", no_acl)).code == Code.INVALID_ACL
    assert client.create("/none/a/").code == Code.NO_NODE
    client.create("/locked", acl=acl_bytes((1, "world", "anyone")))
    assert client.create("/locked/").code == Code.NO_AUTH
    client.create("/e", flags=1)
    assert client.create("/e/c").code == Code.NO_CHILDREN_FOR_EPHEMERALS
    assert client.create("/e/..").code == Code.BAD_ARGUMENTS
    other.create("/e/c")
    assert other.create("/e").code == Code.NODE_EXISTS


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "relative", "/a\x00"])
def test_delete_refuses_nodes_that_stay(client: Client, path: str) -> None:
    assert client.delete(path).code == Code.BAD_ARGUMENTS


def test_order_of_checks_of_delete(client: Client) -> None:
    assert client.delete("/none/a").code == Code.NO_NODE
    client.create("/locked", acl=acl_bytes((31 - 8, "world", "anyone")))
    client.create("/locked/a")
    assert client.delete("/locked/none").code == Code.NO_AUTH
    client.create("/p")
    client.create("/p/c")
    assert client.delete("/p", 7).code == Code.BAD_VERSION
    assert client.delete("/p").code == Code.NOT_EMPTY
    assert client.delete("/p/none").code == Code.NO_NODE


def test_order_of_checks_of_set_data_and_set_acl(client: Client) -> None:
    assert client.set("/a/").code == Code.BAD_ARGUMENTS
    assert client.set("/none", version=9).code == Code.NO_NODE
    client.create("/locked", acl=acl_bytes((1, "world", "anyone")))
    assert client.set("/locked", version=9).code == Code.NO_AUTH
    assert client.call(Op.SET_ACL, text("/none") + int_bytes(0) + int_bytes(0)).code == Code.INVALID_ACL
    assert client.call(Op.SET_ACL, text("/none") + OPEN + int_bytes(0)).code == Code.NO_NODE
    assert client.call(Op.SET_ACL, text("/locked") + OPEN + int_bytes(9)).code == Code.NO_AUTH


def test_only_minus_one_is_any_version(client: Client) -> None:
    client.create("/a")
    assert [client.set("/a", version=each).code for each in (-2, 1, 0, -1)] == [-103, -103, 0, 0]


def test_stat_after_changes_of_a_node_and_of_its_children(client: Client) -> None:
    created = client.create("/a", b"xyz").zxid
    client.create("/a/b")
    last = client.delete("/a/b").zxid
    changed = client.set("/a", b"12345").zxid
    client.set("/a/none")
    acl = client.call(
        Op.SET_ACL, text("/a") + acl_bytes((31, "world", "anyone"), (1, "ip", "10.0.0.1")) + int_bytes(-1)
    )
    stat = client.exists("/a").stat
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (created, changed, last)
    assert (stat.version, stat.cversion, stat.aversion, stat.data_bytes, stat.children) == (1, 2, 1, 5, 0)
    assert acl.stat == stat


def test_cversion_rises_by_one_with_each_creation_and_deletion(client: Client) -> None:
    client.create("/p")
    seen = []
    for step in ("a", "b", "-a", "c", "-b", "-c"):
        client.delete(f"/p/{step[1:]}") if step.startswith("-") else client.create(f"/p/{step}")
        seen.append(client.exists("/p").stat.cversion)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_version_never_becomes_minus_one(client: Client) -> None:
    client.create("/a")
    state = client.keeper.state
    record = state.nodes[b"/a"]
    state.put(state.nodes, b"/a", record[:-68] + stat_of(record)._replace(version=-2).pack())
    state.settle()
    assert client.set("/a").stat.version == 0


# --- sequential nodes ----------------------------------------------------------------------------------------------------


def test_numbers_are_dense_and_not_used_up_by_what_was_refused_or_deleted(client: Client) -> None:
    client.create("/p")
    names = [path_of(client.create("/p/n", flags=2).record)]
    client.delete("/p/n0000000000")
    client.create("/p/\x01", flags=2)
    client.call(Op.MULTI, multi_body((Op.CREATE, create_body("/p/n", flags=2)), (Op.CHECK, versioned("/none"))))
    names += [path_of(client.create("/p/", flags=3).record), path_of(client.create("/p/x", flags=2).record)]
    assert names == ["/p/n0000000000", "/p/0000000001", "/p/x0000000002"]


def test_numbers_wrap_as_signed_integers_of_four_bytes(client: Client) -> None:
    client.create("/p")
    client.keeper.state.counters[b"/p"] = 2**31 - 1
    names = [path_of(client.create("/p/n", flags=2).record) for _ in range(2)]
    assert names == ["/p/n2147483647", "/p/n-2147483648"]


# --- multi ---------------------------------------------------------------------------------------------------------------


def header(op: int, code: int) -> bytes:
    return int_bytes(op) + b"\0" + int_bytes(code)


END = int_bytes(-1) + b"\1" + int_bytes(-1)


def test_an_empty_multi_uses_up_a_zxid(client: Client) -> None:
    before = client.ping().zxid
    assert client.call(Op.MULTI, multi_body()) == (2, before + 1, 0, END)


def test_a_multi_has_one_zxid_and_later_operations_see_earlier_ones(client: Client) -> None:
    operations = (
        (Op.CREATE, create_body("/m")),
        (Op.CREATE2, create_body("/m/c")),
        (Op.SET_DATA, set_body("/m", b"z", 0)),
        (Op.CHECK, versioned("/m", 1)),
        (Op.DELETE, versioned("/m/c")),
    )
    reply = client.call(Op.MULTI, multi_body(*operations))
    stat = client.exists("/m").stat
    assert (stat.czxid, stat.mzxid, stat.pzxid, stat.version) == (reply.zxid, reply.zxid, reply.zxid, 1)
    assert reply.record.startswith(header(1, 0) + text("/m") + header(15, 0) + text("/m/c"))
    assert reply.record.endswith(header(13, 0) + header(2, 0) + END)


@pytest.mark.parametrize("op", [Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL])
def test_creations_in_a_multi_that_have_a_stat_are_of_one_type(client: Client, op: Op) -> None:
    body = create_ttl_body("/m", 5) if op == Op.CREATE_TTL else create_body("/m", flags=0)
    assert client.call(Op.MULTI, multi_body((op, body))).record.startswith(header(15, 0) + text("/m"))


def test_in_a_multi_the_flags_alone_make_a_container(client: Client) -> None:
    reply = client.call(Op.MULTI, multi_body((Op.CREATE, create_body("/m", flags=4))))
    assert reply.record.startswith(header(15, 0))
    assert client.keeper.state.lifetimes == {b"/m": 0}


def test_a_multi_that_fails_changes_nothing_and_names_the_operation(client: Client) -> None:
    client.create("/p")
    client.create("/p/e", flags=1)
    before = dict(client.keeper.state.nodes), client.keeper.state.digest
    operations = (
        (Op.CREATE, create_body("/p/n", flags=2)),
        (Op.SET_DATA, set_body("/p", b"z")),
        (Op.DELETE, versioned("/p/e")),
        (Op.CHECK, versioned("/p", 7)),
        (Op.CREATE, create_body("/q")),
    )
    reply = client.call(Op.MULTI, multi_body(*operations))
    codes = [0, 0, 0, Code.BAD_VERSION, Code.RUNTIME_INCONSISTENCY]
    assert (reply.code, reply.record) == (0, b"".join(header(-1, each) + int_bytes(each) for each in codes) + END)
    assert (dict(client.keeper.state.nodes), client.keeper.state.digest) == before
    assert client.keeper.state.ephemerals == {client.session: {b"/p/e": True}}


@pytest.mark.parametrize(
    "body",
    [
        multi_body((Op.CREATE, create_body("/m")), (Op.GET_DATA, watched("/"))),
        multi_body((Op.GET_DATA, watched("/"))),
        multi_body((99, b"")),
        multi_body((Op.CREATE, create_body("/m")))[:-20],
        multi_body((Op.CREATE, create_body("/m", flags=7))),
        multi_body((Op.CREATE, create_body("/m", flags=5))),
        multi_body((Op.CREATE, create_body(None))),
    ],
)
def test_a_multi_that_can_not_be_decoded_is_refused_as_a_whole_and_uses_up_a_zxid(client: Client, body: bytes) -> None:
    before = client.ping().zxid
    assert client.call(Op.MULTI, body) == (2, before + 1, Code.MARSHALLING_ERROR, b"")


def test_a_null_acl_in_a_multi_uses_up_no_zxid(client: Client) -> None:
    before = client.ping().zxid
    body = multi_body((Op.CREATE, create_body("/m", acl=int_bytes(-1))))
    assert client.call(Op.MULTI, body) == (2, before, Code.MARSHALLING_ERROR, b"")


# --- broken requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [Op.CREATE, Op.CREATE2, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.CREATE_TTL, Op.RECONFIG])
def test_a_body_that_is_cut_short_is_refused_without_a_zxid_and_the_connection_lives(client: Client, op: Op) -> None:
    before = client.ping().zxid
    assert client.call(op, b"\0\0")[1:] == (before, Code.MARSHALLING_ERROR, b"")
    assert client.exists("/").code == 0


def test_a_buffer_longer_than_its_frame_is_refused(client: Client) -> None:
    assert client.call(Op.CREATE, text("/a") + int_bytes(10**9)).code == Code.MARSHALLING_ERROR


def test_bytes_behind_a_request_are_ignored(client: Client) -> None:
    assert client.call(Op.CREATE, create_body("/a") + b"more").code == 0


def test_a_null_path_uses_up_a_zxid(client: Client) -> None:
    before = client.ping().zxid
    assert client.call(Op.CREATE, create_body(None))[1:3] == (before + 1, Code.MARSHALLING_ERROR)
    assert client.call(Op.SET_DATA, set_body(None, b""))[1:3] == (before + 2, Code.BAD_ARGUMENTS)


def test_reconfiguration_is_refused(client: Client) -> None:
    assert client.call(Op.RECONFIG, text("") * 3 + b"\xff" * 8).code == Code.RECONFIG_DISABLED


# --- access control ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "acl",
    [
        int_bytes(0),
        int_bytes(-1),
        acl_bytes((31, "foo", "bar")),
        acl_bytes((31, "world", "x")),
        acl_bytes((31, "digest", "x")),
        acl_bytes((31, "digest", "x:")),
        acl_bytes((31, "digest", "a:b:c")),
        acl_bytes((31, "ip", "1.2.3")),
        acl_bytes((31, "ip", "1.2.3.4/33")),
        acl_bytes((31, "super", "")),
        acl_bytes((31, None, "x")),
        acl_bytes((31, "auth", "")),
    ],
)
def test_acls_that_are_not_well_formed_are_refused(client: Client, acl: bytes) -> None:
    assert client.create("/a", acl=acl).code == Code.INVALID_ACL


def test_doubles_of_an_acl_are_removed(client: Client) -> None:
    client.create("/a", acl=acl_bytes((1, "world", "anyone"), (1, "world", "anyone")))
    assert client.call(Op.GET_ACL, text("/a")).record[:-68] == acl_bytes((1, "world", "anyone"))


def test_auth_stands_for_the_digests_of_the_connection_in_the_same_batch(client: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    client.create("/a", acl=acl_bytes((31, "auth", "whatever")))
    assert client.call(Op.GET_ACL, text("/a")).record[:-68] == ONLY_U


def test_identities_are_of_the_connection_and_not_of_the_session(client: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    client.create("/a", acl=ONLY_U)
    assert client.get("/a").code == 0
    assert client.again().get("/a").code == Code.NO_AUTH


def test_nothing_is_shown_or_changed_without_permission(client: Client, other: Client) -> None:
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    client.create("/a", acl=ONLY_U)
    client.create("/a/b")
    refused = [
        other.get("/a"),
        other.exists("/a"),
        other.call(Op.GET_CHILDREN2, watched("/a")),
        other.call(Op.GET_ACL, text("/a")),
        other.call(Op.GET_ALL_CHILDREN_NUMBER, text("/a")),
        other.set("/a"),
        other.create("/a/c"),
        other.delete("/a/b"),
        other.call(Op.SET_ACL, text("/a") + OPEN + int_bytes(-1)),
    ]
    assert {each.code for each in refused} == {Code.NO_AUTH}
    # What a node lets its readers do says its parent.
    assert other.get("/a/b").code == 0
    assert client.set("/a").code == 0


def test_super_may_do_everything(client: Client, other: Client) -> None:
    client.create("/a", acl=acl_bytes((0, "world", "anyone")))
    assert client.get("/a").code == Code.NO_AUTH
    other.call(Op.AUTH, auth_body("digest", b"super:test"), xid=-4)
    assert other.get("/a").code == 0
    assert other.set("/zookeeper/config").code == 0


def test_get_acl_hides_digests_from_those_without_admin(client: Client) -> None:
    client.create("/a", acl=acl_bytes((31, "digest", DIGEST), (1, "world", "anyone")))
    hidden = acl_bytes((31, "digest", "u:x"), (1, "world", "anyone"))
    assert client.call(Op.GET_ACL, text("/a")).record[:-68] == hidden
    client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4)
    assert client.call(Op.GET_ACL, text("/a")).record[:-68] == acl_bytes((31, "digest", DIGEST), (1, "world", "anyone"))


@pytest.mark.parametrize(
    ("acl", "address", "code"),
    [
        ("10.0.0.0/8", "10.1.2.3", 0),
        ("10.0.0.0/8", "11.1.2.3", -102),
        ("10.1.2.3", "10.1.2.3", 0),
        ("fd00::/16", "fd00::1", 0),
        ("fd00::/16", "10.1.2.3", -102),
    ],
)
def test_addresses_are_compared_with_as_many_bits_as_the_acl_has(
    keeper: MemoryKeeper, acl: str, address: str, code: int
) -> None:
    client = Client(keeper, address=address)
    client.create("/a", acl=acl_bytes((31, "ip", acl)))
    assert client.get("/a").code == code


# --- containers, times to live, quotas -----------------------------------------------------------------------------------


def test_a_container_goes_when_its_last_child_is_gone_and_never_before_its_first(
    keeper: MemoryKeeper, client: Client
) -> None:
    client.create("/c", op=Op.CREATE_CONTAINER)
    keeper.front.reap(keeper.now_ms)
    client.create("/c/a")
    keeper.front.reap(keeper.now_ms)
    keeper.turn()
    assert client.exists("/c").code == 0
    client.delete("/c/a")
    keeper.front.reap(keeper.now_ms)
    keeper.turn()
    assert client.exists("/c").code == Code.NO_NODE


def test_a_container_that_got_a_child_between_look_and_entry_stays(keeper: MemoryKeeper, client: Client) -> None:
    client.create("/c", op=Op.CREATE_CONTAINER)
    client.create("/c/a")
    client.delete("/c/a")
    keeper.front.received(client.connection, request(9, Op.CREATE, create_body("/c/b")), keeper.now_ns)
    keeper.front.reap(keeper.now_ms)
    keeper.turn()
    assert [client.exists(path).code for path in ("/c", "/c/b")] == [0, 0]


def test_time_to_live_counts_from_the_last_change_and_by_the_time_of_entries(
    keeper: MemoryKeeper, client: Client
) -> None:
    client.call(Op.CREATE_TTL, create_ttl_body("/t", 1_000))
    keeper.now_ms += 900
    client.set("/t")
    keeper.now_ms += 1_000
    assert due_nodes(keeper.state, keeper.now_ms, 9) == []
    keeper.now_ms += 1
    assert [each.path for each in due_nodes(keeper.state, keeper.now_ms, 9)] == [b"/t"]
    keeper.front.received(client.connection, request(9, Op.SET_DATA, set_body("/t", b"")), keeper.now_ns)
    keeper.front.reap(keeper.now_ms)
    keeper.turn()
    assert client.exists("/t").code == 0


def test_statistics_of_a_quota_count_the_subtree_with_its_root_and_change_nothing_else(client: Client) -> None:
    client.create("/q", b"1")
    client.create("/q/a", b"22")
    for path, data in (("", b""), ("/zookeeper_limits", b"count=1,bytes=-1"), ("/zookeeper_stats", b"count=0,bytes=0")):
        assert client.create(f"/zookeeper/quota/q{path}", data).code == 0
    stats = "/zookeeper/quota/q/zookeeper_stats"
    before = client.exists(stats).stat
    assert client.data(stats) == b"count=2,bytes=3"
    client.create("/q/b", b"333")
    client.set("/q/a", b"4444")
    client.call(Op.MULTI, multi_body((Op.CREATE, create_body("/q/c")), (Op.CHECK, versioned("/none"))))
    assert client.data(stats) == b"count=3,bytes=8"
    assert client.exists(stats).stat == before
    client.delete("/q/b")
    assert client.data(stats) == b"count=2,bytes=5"


@pytest.mark.parametrize("data", [None, b"", b"rubbish", b"count=1", b"count=" + b"9" * 5000 + b",bytes=1"])
def test_a_quota_whose_statistics_are_rubbish_stops_nothing(client: Client, data: bytes | None) -> None:
    client.create("/q")
    client.create("/zookeeper/quota/q")
    client.create("/zookeeper/quota/q/zookeeper_limits", data)
    client.create("/zookeeper/quota/q/zookeeper_stats", data)
    assert client.create("/q/a").code == 0
    assert client.keeper.front.faults == []
