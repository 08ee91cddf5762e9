"""Write the corpus: ``python -m tests.fuzz.seeds``.  It adds files that the encoders of this version make, and changes none.

The frozen files of `tests.formats` are part of it.  A format that changes gets new files here; those of before stay, as do the
inputs that were findings.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import ssl
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from replitree.client.read.snapshot import SnapshotBody, SnapshotPart
from replitree.coordination.trace import CommitEnded, CommitSent, Told, TraceHead, TraceOperation
from replitree.machines.register import Cell, Register
from replitree.machines.sequencer import Sequencer
from replitree.replica.kit.tokens import TokenList, TokenRecord
from replitree.replica.perform.exchange import FRAME, BundleHeader
from replitree.storage.parts.conform import conform
from replitree.storage.parts.manifest import MANIFEST_FILE, decode_manifest, read_manifest
from replitree.storage.parts.order import sort_rows
from replitree.tablet.core.entries import encode
from replitree.tablet.core.losses import encode_record
from replitree.tablet.members.frames import frame_of
from replitree.tablet.members.wire import encode_message
from replitree.wire.identity import Identity
from replitree.wire.named_token import Role
from replitree.wire.ticket import Ticket
from replitree_published.bridge import recorded
from tests.formats import test_tablet_formats as tablets
from tests.formats.samples import EMPTY, FULL, NULLS
from tests.fuzz.on_answers import PART_FOLDER
from tests.fuzz.on_http import PLACE, SECRET
from tests.fuzz.on_json import NAMED, OWN
from tests.fuzz.on_rows import FLAT, ROWS
from tests.fuzz.target import ANY, CORPUS, Target, outcome_of
from tests.fuzz.targets import TARGETS
from tests.tablet.building import data_id

_FORMATS = Path(__file__).parents[1] / "formats"


def _kept(metadata: Path, columns: Path) -> bytes:
    return b'{"metadata":%s,"columns":%s,"format":1}' % (metadata.read_bytes().strip(), columns.read_bytes().strip())


def _coordination() -> Iterator[tuple[str, str, bytes]]:
    for path in sorted((_FORMATS / "coordination").glob("entry-*.json")):
        yield "entry", path.stem, path.read_bytes()
    yield "node", "quorum", (_FORMATS / "coordination/quorum-1.json").read_bytes()
    identity = Identity("127.0.0.1:9000", "0" * 32, "boot/pid:[1]", 7, 8)
    yield "node", "identity", identity.encode()
    yield "node", "log", b'{"first":41,"format":2}'
    yield "node", "block", b'{"insert":"i1","log_from":7,"format":1,"partitions":["all"]}'
    yield "node", "map", (_FORMATS / "coordination/map-1.json").read_bytes()
    yield "node", "restoring", b'{"replica":"r1","first":9,"format":1}'
    yield "node", "pointer", b"41 38,40"
    storage = _FORMATS / "storage"
    for metadata in sorted(storage.glob("metadata-*.json")):
        columns = "columns-1-policy.json" if "policy" in metadata.stem else "columns-1.json"
        yield "definition", metadata.stem, _kept(metadata, storage / columns)
    for columns in ("columns-1", "columns-1-altered", "columns-2-altered"):
        yield "definition", columns, _kept(storage / "metadata-1.json", storage / f"{columns}.json")
    yield "kept-definition", "definition", _kept(storage / "metadata-1.json", storage / "columns-1.json")
    for path in sorted(storage.glob("mutation-*.json")):
        yield "mutation", path.stem, path.read_bytes()


def _manifests() -> Iterator[tuple[str, str, bytes]]:
    storage = _FORMATS / "storage"
    for number in (1, 2, 3, 4):
        data = (storage / f"part-{number}/manifest.json").read_bytes()
        yield "manifest", f"format-{number}", data
        yield "share", f"format-{number}", data
    manifest = decode_manifest((storage / "part-1/manifest.json").read_bytes())
    part = SnapshotPart(f"{manifest.partition}_0_0_0", "/data/r1/t/parts/x", manifest)
    body = SnapshotBody(7, 1, "r1", "boot/pid:[1]", (part,), "lease", 60.0)
    yield "snapshot", "one-part", msgspec.json.encode(body)
    yield "snapshot", "no-parts", msgspec.json.encode(msgspec.structs.replace(body, parts=()))
    yield "error", "not-found", b'{"error":"TableNotFound","message":"there is no table t"}'
    yield "error", "unknown", b'{"error":"OutcomeUnknown","message":"m","token":"a"}'
    yield "frozen", "frozen", (storage / "frozen-1.json").read_bytes()


_INSERT = {
    "kind": "insert",
    "client": "c1",
    "table": "t",
    "call": 1,
    "answer": 5,
    "outcome": "ok",
    "rows": [[0, 3]],
    "index": 4,
}
_READ = {"kind": "read", "client": "c2", "table": "t", "call": 6, "answer": 9, "outcome": "ok", "level": "linearizable"}


def _json_files() -> Iterator[tuple[str, str, bytes]]:
    head = b'{"format":"replitree-history","version":1,"clock":"c"}\n'
    operations = (
        _INSERT,
        {**_READ, "rows": [[0, 3]], "index": 5},
        {**_INSERT, "call": 10, "answer": None, "outcome": "unknown"},
    )
    yield "history", "three", head + b"".join(json.dumps(each).encode() + b"\n" for each in operations)
    yield "history", "none", head
    lines = (
        TraceHead("r1"),
        CommitSent(
            0,
            1,
            (
                TraceOperation("check", "/t/host", version=3),
                TraceOperation("create", "/replitree/tables/t/log/log-", "{}", sequential=True),
            ),
        ),
        CommitEnded(0, "applied", 9, ("/replitree/tables/t/log/log-0000000000",)),
        CommitSent(
            1,
            1,
            (
                TraceOperation("set", "/replitree/tables/t/x", "1", 2),
                TraceOperation("delete", "/replitree/tables/t/y", version=1),
            ),
        ),
        Told("/replitree/tables/t", 9, 0),
        CommitEnded(1, "unknown"),
    )
    yield "trace", "two-commits", b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    file = io.BytesIO()
    recorded.write_head(file, ("r1", "r2"))
    standing = {"is_active": True, "is_lost": False, "pointer": 1, "queue": [0], "parts": []}
    file.write(json.dumps({"first": 0, "end": 2, "replicas": [standing, standing]}).encode() + b"\n")
    yield "outlines", "one", file.getvalue()
    yield (
        "server-toml",
        "all",
        (
            b'name = "r1"\nzookeeper = "zk://127.0.0.1:2181/replitree"\ndata = "/data/r1"\ntoken_file = "token"\n'
            b'listen = "127.0.0.1:9000"\ntables = ["a", "*"]\nsession_timeout_s = 10.5\nmerge = "self"\nzero_copy = true\n'
            b'[stores]\nlake = "s3://bucket/prefix?endpoint=http://127.0.0.1:8333"\n'
        ),
    )
    yield (
        "cluster",
        "three",
        b'{"url":"zk://127.0.0.1:2181/replitree","token_file":"token","replicas":[{"name":"r1","pid":7,"data":"r1","config":"r1/server.toml"}]}',
    )
    yield "group", "three", (_FORMATS / "tablet/group.json").read_bytes()


def _tokens() -> Iterator[tuple[str, str, bytes]]:
    yield (
        "tokens",
        "two",
        msgspec.json.encode(
            TokenList(
                (
                    TokenRecord("etl", Role.WRITE, NAMED.digest, NAMED.ticket_key, ("t",), "2026-01-31T12:00:00+00:00"),
                    TokenRecord("reader", Role.READ, NAMED.digest, NAMED.ticket_key),
                )
            )
        ),
    )
    for name, token in (
        ("own", OWN),
        ("named", NAMED.text),
        ("ticket", Ticket("t", 1 << 40, reads=True).signed(OWN)),
        ("named-ticket", Ticket("t", 1 << 40, reads=True, upload="0" * 32).signed(NAMED.text)),
    ):
        yield "authorization", name, f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}".encode()


def _tablets() -> Iterator[tuple[str, str, bytes]]:
    for name, (blob, entry) in tablets.ENTRIES.items():
        yield "tablet-entry", name, encode(blob, entry)
    yield "tablet-loss", "loss", encode_record(data_id(3, 0, channel=2), tablets.LOSS)
    yield "blob-state", "state", tablets.frozen("state")
    for message in tablets.MESSAGES:
        yield "blob-message", type(message).__name__.lower(), encode_message(message)
    segment = tablets.frozen("segment")
    for target in ("blob-frames", "blob-segments"):
        yield target, "two", segment
        yield target, "large", segment + frame_of(tablets.ENTRIES["body"][0], b"RTBF" * 500)
        yield target, "torn", segment + segment[:40]
        yield target, "zeros", segment + bytes(64)
        yield target, "empty", b""


_CONDITIONS = (
    "i64 > 5 and not (s like 'a%' or b)",
    "t >= timestamp'2018-01-31 10:00:00' and d in (date'2018-01-31', date'2018-02-01')",
    "r.a is null or `m` between -1.5 and 1e3",
    "y = X'00ff' and x <=> null and cast('5' as int) = i32",
    "startswith(s, 'gr') or s ilike '%x\\_'",
)
_ASSIGNMENTS = (
    "i64 + 1",
    "case when b then upper(s) else concat(s, 'x', trim(s)) end",
    "cast(m * 2.5 as decimal(12,2))",
    "if(i32 % 7 = 3, date'2018-01-31', d)",
    "coalesce(nullif(s, ''), lower('A') || s)",
    "-i16 / 4.0D - 1L",
)
_ALTERS = (
    "ADD COLUMN price decimal(12,2) NOT NULL DEFAULT 0 AFTER s",
    "ALTER TABLE every_type ADD COLUMNS (z1 int, z2 string FIRST), DROP COLUMN x",
    "RENAME COLUMN r.a TO q; ",
    "ALTER COLUMN i32 TYPE bigint, ALTER COLUMN f SET DATA TYPE double",
    "ALTER COLUMN d SET DEFAULT date'2018-01-31', ALTER COLUMN d DROP DEFAULT, ALTER COLUMN i64 DROP NOT NULL",
    "ADD COLUMN p.value.element.z array<struct<a: map<string, int> comment 'x'>>",
)
_SCHEMAS = (
    "d date, k bigint not null, tags array<string>",
    "a struct<x: int, `odd name`: map<string, array<timestamp_ntz>>> comment 'c', m decimal(38, 10)",
    "u uint8, t timestamp[us, tz=UTC], f real",
)
_NAMES = (
    *("events", "r1", "all_0_3_1", "2018-01_7_9_1_9", "zk://me:secret@h:1,[::1]:2/lake", "127.0.0.1:9000", "lake"),
    *(
        "s3://bucket/prefix?endpoint=http://h:8333&region=eu",
        "gs://bucket_of/prefix?endpoint=https://h:443&insecure=true",
        "az://container/prefix?account=example&endpoint=http://127.0.0.1:10000",
        "file:///lake/a%20b",
        "memory://",
        "array<struct<a:int64>>",
    ),
    *("bucket(16, k)", "month(d)", "truncate(10,s)", "replacing(version)", "summing(a, `odd name`)", "data-0.parquet"),
    *(
        "tiered(s3://lake/t, older=7d, free=100GB)",
        "local(s3://lake)",
        "0.05",
        "timestamp'2018-01-31 10:00:00+02:00'",
        "k",
    ),
)
_STATEMENTS = (
    "-- how many\n select count(*) from t",
    "delete from `t` where k = 1",
    "/* a */ update t set v = 1",
    "alter table t add column z int",
    "insert into t values (1)",
)


def _texts() -> Iterator[tuple[str, str, bytes]]:
    texts = {
        "condition": _CONDITIONS,
        "assignment": _ASSIGNMENTS,
        "alter-text": _ALTERS,
        "schema": _SCHEMAS,
        "name": _NAMES,
        "statement": _STATEMENTS,
    }
    for target, several in texts.items():
        for number, text in enumerate(several):
            yield target, str(number), text.encode()


def _stream(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _file(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _layouts() -> pa.Table:
    """Rows in the layouts that a cast has to undo: views, dictionaries, runs, large offsets."""
    words = ["a", None, "größe" * 9, "b"]
    lists = [["x"], None, [], ["y", None]]
    return pa.table(
        {
            "s": pa.array(words, pa.string_view()),
            "y": pa.array([b"a", None, b"bc" * 20, b""], pa.binary_view()),
            "i64": pa.array([1, 2, 2, 3], pa.int16()).dictionary_encode(),
            "i32": pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([7, None], pa.int32())),
            "l": pa.array(lists, pa.large_list(pa.large_string())),
            "r": pa.array([{"a": 1, "b": [Decimal("1.5")]}, None, {"a": None, "b": None}, {"a": 2, "b": []}]),
            "p": pa.array([[("k", [])], None, [], []], pa.map_(pa.string(), pa.list_(pa.struct([("w", pa.bool_())])))),
            "m": pa.array([Decimal("1.25"), None, Decimal(-3), Decimal(0)], pa.decimal256(40, 2)),
        }
    )


def _list_views() -> pa.Table:
    return pa.table(
        {
            "i64": pa.array([1, 2, 3]),
            "l": pa.array([["x"], None, ["y", "z"]], pa.list_view(pa.string_view())),
            "s": pa.array(["a", "b", None], pa.large_string()).dictionary_encode(),
        }
    )


def _rows() -> Iterator[tuple[str, str, bytes]]:
    renamed = [{**{k: v for k, v in each.items() if k != "r"}} for each in (FULL, NULLS, EMPTY)]
    every = conform(renamed, ROWS)
    yield "arrow", "every-type", _stream(every)
    yield "arrow", "zstd", _stream(every, compression="zstd")
    yield "arrow", "lz4", _stream(every.slice(0, 2), compression="lz4")
    yield "arrow", "layouts", _stream(_layouts())
    yield "arrow", "list-views", _stream(_list_views())
    yield "arrow", "no-rows", _stream(every.slice(0, 0))
    stored = sort_rows(every, ROWS.order_by)
    yield "parquet", "every-type", _parquet(stored)
    yield "parquet", "dictionary-zstd", _parquet(stored, compression="zstd", data_page_version="2.0")
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    yield "parquet", "plain", _parquet(stored, **plain, write_page_checksum=True)
    yield (
        "parquet",
        "delta",
        _parquet(stored, use_dictionary=False, column_encoding={"i64": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}),
    )
    days = [dt.date(2018, 1, 31), None, dt.date(1969, 1, 1)]
    flat = conform(
        {"k": [1, 2, 3], "v": [0.5, None, -1e300], "s": ["a", 'q"\n,', None], "d": days, "b": [True, None, False]}, FLAT
    )
    yield "load-parquet", "flat", _parquet(flat)
    yield "load-parquet", "nested", _parquet(stored)
    yield "load-arrow", "file", _file(flat)
    yield "load-arrow", "stream", _stream(flat)
    yield "load-arrow", "layouts", _stream(_layouts().select(["s", "i64", "i32"]).rename_columns(["s", "k", "m"]))
    csv = b'k,v,s,d,t,m,b\n1,0.5,"a ""q"", b",2018-01-31,2018-01-31 10:00:00,1.25,true\n'
    csv += b'2,,"",1969-12-31,2018-01-31T10:00:00Z,,false\n'
    yield "load-csv", "odd", csv + b"\n" * (1 - len(csv) % 2)
    yield "load-csv", "even", csv + b"\n" * (len(csv) % 2)
    lines = (
        {"k": 1, "v": 0.5, "s": "a", "d": "2018-01-31", "t": "2018-01-31 10:00:00", "m": "1.25", "b": True},
        {"k": 2, "s": None, "t": "2018-01-31T10:00:00+02:00"},
    )
    jsonl = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    yield "load-jsonl", "odd", jsonl + b"\n" * (1 - len(jsonl) % 2)


def _request(line: str, body: bytes = b"", *headers: str, token: bytes = PLACE) -> bytes:
    lines = (f"{line} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\nAuthorization: Bearer " + token + b"\r\n\r\n" + body


_TABLE = "/v1/tables/t"
_GETS = (
    *(
        "/health",
        "/metrics",
        "/v1/status",
        f"{_TABLE}/status",
        f"{_TABLE}/snapshot?level=linearizable&lease_s=1&wait_s=0.01",
    ),
    *(
        f"{_TABLE}/snapshot?as_of=0",
        f"{_TABLE}/mutations",
        f"{_TABLE}/detached",
        f"{_TABLE}/frozen",
        f"{_TABLE}/shares",
    ),
    *(
        f"{_TABLE}/parts/all_0_0_0/manifest",
        f"{_TABLE}/parts/all_0_0_0/files/data-0.parquet",
        f"{_TABLE}/bundle?parts=all_0_0_0",
    ),
)
_POSTS = {
    "mutations": {"kind": "delete", "where": "k = 1", "token": "a", "wait": False},
    "drop": {"partition": "all", "detach": False},
    "alter": {"statement": "add column z int"},
    "storage": {"storage": "local"},
    "optimize": {"final": False},
    "freeze": {"name": "f1"},
    "attach": {"name": "all_0_0_0"},
    "uploads": {"writer": "w"},
    "merges/plan": {"lease_s": 1.0},
    "merges/result": {"upload": "0" * 32},
    "check": {},
}


def _http() -> Iterator[tuple[str, str, bytes]]:
    rows = pa.table({"k": [1, 2], "v": [0.5, 1.0], "s": ["a", "b"]})
    insert = _request(f"POST {_TABLE}/insert?token=a&overwrite=", _stream(rows))
    yield "http-body", "insert", insert
    yield "http-head", "insert", insert
    yield "http-head", "pipelined", insert + _request("GET /health")
    for number, path in enumerate(_GETS):
        yield "http-head", f"get-{number:02}", _request(f"GET {path}")
    for name, body in _POSTS.items():
        request = _request(f"POST {_TABLE}/{name}", json.dumps(body).encode())
        yield "http-body", name.replace("/", "-"), request
        yield "http-head", name.replace("/", "-"), request
    upload = "0" * 32
    yield "http-head", "put-file", _request(f"PUT {_TABLE}/uploads/{upload}/all/data-0.parquet", b"PAR1")
    yield "http-head", "delete-lease", _request(f"DELETE {_TABLE}/leases/{upload}")
    yield "http-head", "delete-mutation", _request(f"DELETE {_TABLE}/mutations/7")
    chunked = _request(f"POST {_TABLE}/insert", b"", "Transfer-Encoding: chunked").replace(
        b"Content-Length: 0\r\n", b""
    )
    yield "http-head", "chunked", chunked + b"4\r\nabcd\r\n0\r\n\r\n"
    yield "http-head", "gzip", _request(f"POST {_TABLE}/drop", b"nothing", "Content-Encoding: gzip")
    yield "http-head", "expect", _request(f"POST {_TABLE}/drop", b"{}", "Expect: 100-continue", "Connection: close")
    yield "http-head", "no-token", _request(f"GET {_TABLE}/status", token=SECRET.encode())
    yield "http-head", "odd-head", f"GET / HTTP/1.1\r\nAuthorization : Bearer {SECRET}\r\n\r\n".encode()
    yield "http-head", "http-1-0", b"GET /health HTTP/1.0\r\n\r\n"
    for name, version in (("1-3", ssl.TLSVersion.TLSv1_3), ("1-2", ssl.TLSVersion.TLSv1_2)):
        context, sent = ssl.create_default_context(), ssl.MemoryBIO()
        context.maximum_version = version
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
        yield "tls-hello", name, sent.read()
    yield "tls-hello", "clear-text", insert
    yield "http-head", "upgrade", _request("GET /v1/status", b"", "Upgrade: h2c", "Connection: Upgrade")


def _answers() -> Iterator[tuple[str, str, bytes]]:
    stat = struct.pack("!24xqi32x", 1_700_000_000_000, 3)
    head, path, end = (
        struct.Struct("!iBi").pack,
        b"/replitree/tables/t/log/log-0000000041",
        struct.pack("!iBi", -1, 1, -1),
    )
    text = struct.pack("!i", len(path)) + path
    yield (
        "zk-transaction",
        "applied",
        b"".join((head(1, 0, 0), text, head(13, 0, 0), head(5, 0, 0), stat, head(2, 0, 0), end)),
    )
    failed = head(-1, 0, -103) + struct.pack("!i", -103)
    yield "zk-transaction", "failed", b"".join((head(-1, 0, 0), struct.pack("!i", 0), failed, end))
    node = b"".join((head(4, 0, 0), struct.pack("!i", 7), b"1234567", stat))
    yield "zk-reads", "nodes", b"".join((node, head(4, 0, 0), struct.pack("!i", -1), stat, failed, end))
    yield "zk-reads", "children", b"".join((head(8, 0, 0), struct.pack("!i", 2), text, text, end))
    yield "zk-reads", "backwards", b"".join((head(8, 0, 0), struct.pack("!ii", 2**31 - 1, -4), text, end))
    yield "zk-transaction", "backwards", b"".join((head(1, 0, 0), struct.pack("!i", -13), text, end))
    manifest = read_manifest(PART_FOLDER)
    raw, part = (PART_FOLDER / MANIFEST_FILE).read_bytes(), f"{manifest.partition}_0_0_0"
    files = b"".join((PART_FOLDER / file.name).read_bytes() for file in manifest.files)
    for name, header, content in (
        ("inline", BundleHeader(part, len(raw), inline=True), raw + files),
        ("large", BundleHeader(part, len(raw), inline=False), raw),
        ("none", BundleHeader(part, 0, inline=False), b""),
        ("another", BundleHeader("all_9_9_0", len(raw), inline=True), raw + files),
        ("share", BundleHeader(part, len(raw), inline=False, shared=True), raw),
    ):
        said = msgspec.json.encode(header)
        yield "bundle", name, FRAME.pack(len(said)) + said + content
    yield "machine-snapshot", "register", Register().snapshot({"a": Cell(1, "x"), "b": Cell(7, "größe")})
    yield "machine-snapshot", "sequencer", Sequencer().snapshot({"a": 41, "b": 2**40})


def main() -> None:
    """Write what is not there yet, named by the outcome that it has now; a server's depends on what came before."""
    seeds: dict[str, list[tuple[str, bytes]]] = {}
    for group in (_coordination, _manifests, _json_files, _tokens, _tablets, _texts, _rows, _answers, _http):
        for target, name, data in group():
            seeds.setdefault(target, []).append((name, data))
    for target, found in seeds.items():
        with tempfile.TemporaryDirectory() as folder:
            _write(TARGETS[target], found, Path(folder))


def _write(target: Target, seeds: list[tuple[str, bytes]], folder: Path) -> None:
    place = CORPUS / target.name
    place.mkdir(parents=True, exist_ok=True)
    there = {path.name.partition("-")[2] for path in place.iterdir()}
    missing = [(name, data) for name, data in seeds if name not in there]
    if target.name.startswith("http"):
        for name, data in missing:
            (place / f"{ANY}-{name}").write_bytes(data)
    elif missing:
        with target.open(folder) as read:
            for name, data in missing:
                outcome, problem = outcome_of(target, read, data)
                if problem:
                    print(f"{target.name} {name}: {problem}")
                else:
                    (place / f"{outcome}-{name}").write_bytes(data)


if __name__ == "__main__":
    main()
