"""Targets: files and answers in JSON or TOML: manifests, frozen snapshots, histories, traces, configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from replitree import private
from replitree.client.read.snapshot import SnapshotBody
from replitree.client.transport.access import read_cluster_file
from replitree.client.transport.http import HttpResponse
from replitree.errors import BadInput, CorruptPart, NotAuthorized, ReplitreeError, StoreError, UnsupportedFormat
from replitree.replica.http.gate import Gate
from replitree.replica.http.heads import authorization_of
from replitree.replica.kit.config import load_config
from replitree.replica.kit.logs import Log
from replitree.replica.kit.tokens import TokenList, TokenRecord, decode_tokens
from replitree.storage.disk.frozen import FROZEN_FILE, FrozenFolder
from replitree.storage.disk.kept_definition import FILE as DEFINITION_FILE
from replitree.storage.disk.kept_definition import read_definition
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.objects.opening import open_store
from replitree.storage.parts.manifest import MANIFEST_FILE, SEALED_FORMAT, PartManifest, decode_manifest
from replitree.storage.shares.received import check_received
from replitree.storage.shares.shares import ShareObjects
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.tablet.members.folders import read_group
from replitree.wire.named_token import NamedToken, Role
from replitree.wire.prepared_share import decode_joint_body
from replitree_published.bridge.recorded import read_outlines
from replitree_published.bridge.traces import read_traces
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from tests.formats.samples import DEFINITION
from tests.fuzz.mutate import Sealed, Shape
from tests.fuzz.target import Read, Target, reads, reads_file

_SHARE = "0123456789abcdef0123456789abcdef"
_CONDITIONS = (
    "i64 > 5 and s <= 'größe'",
    "b or not i32 between -3 and 4",
    "t >= timestamp'2018-01-31 00:00:00' or d in (date'2018-01-31')",
    "m < 0.5 or x <> 1e3 or y = X'00ff'",
    "n is null or r.a > 3 or f <=> 0.5",
)
_PREDICATES = tuple(parse_predicate(text, DEFINITION) for text in _CONDITIONS)


def _prune(manifest: PartManifest) -> None:
    for predicate in _PREDICATES:
        predicate.may_match(manifest)


def _manifest(data: bytes) -> None:
    manifest = decode_manifest(data, "manifest.json")
    again = decode_manifest(manifest.encode(), "again")
    assert (again, again.content) == (manifest, manifest.content)
    _prune(manifest)


def _snapshot(data: bytes) -> None:
    """Read the answer of a replica, as a client does."""
    body = HttpResponse(200, data).decode(SnapshotBody).check()
    assert body.newest_version >= body.schema_version
    for part in body.parts:
        _prune(part.manifest)


def _error(data: bytes) -> bool:
    """Read the explanation of an error, as a client does; it always becomes an error of ours."""
    assert isinstance(HttpResponse(500, data).error(), ReplitreeError)
    return True


def _joint_body(data: bytes) -> None:
    """Read the commit of a joint insert, as its coordinator does: no name leaves the place in which it is put."""
    body = decode_joint_body(data)
    for share in body.prepared:
        names = (
            share.shard,
            share.incarnation,
            share.replica,
            share.staging,
            *(part.partition for part in share.parts),
        )
        assert not any("/" in name or name in (".", "..") for name in names)


@contextmanager
def _shares(folder: Path) -> Iterator[Read]:
    """Read what an object store has as the manifest of a share, and compare the objects with it."""
    objects = ShareObjects(lambda: open_store(f"file://{folder}"), DEFINITION.table_id)
    place = folder / objects.root / _SHARE
    place.mkdir(parents=True)
    lent = decode_manifest((Path(__file__).parent / "corpus/manifest/accepted-format-1").read_bytes(), "")

    def one(data: bytes) -> None:
        (place / MANIFEST_FILE).write_bytes(data)
        found = objects.manifest_in(_SHARE)
        assert found is not None
        objects._lends(_SHARE, lent.files)  # noqa: SLF001 - what another share's manifest says is read there alone
        manifest = decode_manifest(found, "share")
        objects.is_here(manifest)
        objects.has_files(manifest)
        check_received(objects, manifest, DEFINITION, {})

    yield one


@contextmanager
def _frozen(folder: Path) -> Iterator[Read]:
    frozen = FrozenFolder(folder)
    (folder / "s").mkdir()

    def one(data: bytes) -> None:
        (folder / "s" / FROZEN_FILE).write_bytes(data)
        frozen.read("s")

    yield one


@contextmanager
def _kept_definition(folder: Path) -> Iterator[Read]:
    def one(data: bytes) -> None:
        (folder / DEFINITION_FILE).write_bytes(data)
        read_definition(folder)

    yield one


def _history(path: Path) -> None:
    check(read_files([path]))


def _outlines(path: Path) -> None:
    _, outlines = read_outlines(path)
    list(outlines)


def _opened(data: bytes) -> bytes:
    """Take the checksum out of a manifest, if it has one."""
    return unseal(data, SEALED_FORMAT)


def _sealed(whole: bytes, payload: bytes) -> bytes:
    """Put the right checksum into a changed manifest, where there was one and the changed one can have it."""
    has_checksum = whole != _opened(whole)
    return seal(payload) if has_checksum and re.match(rb'\{"format":[45],', payload) else payload


_SEAL = Sealed(_opened, _sealed)
_FROM_STORE = (CorruptPart, UnsupportedFormat, StoreError, BadInput)

NAMED = NamedToken("etl", "named.etl.0123456789abcdef")
OWN = "fedcba9876543210"


@contextmanager
def _authorizations(folder: Path) -> Iterator[Read]:
    """Read the ``Authorization`` header of a head as a server does, by its own token and a file of named ones."""
    file = folder / "tokens.json"
    record = TokenRecord(NAMED.name, Role.WRITE, NAMED.digest, NAMED.ticket_key, ("t",))
    private.write_file(file, msgspec.json.encode(TokenList((record,))))
    gate = Gate(cast("Any", SimpleNamespace(log=Log())), OWN, file)
    yield lambda data: gate.admit(authorization_of(data))


TARGETS = (
    Target("manifest", reads(_manifest), (CorruptPart, UnsupportedFormat), Shape.JSON, seal=_SEAL, share=1200),
    Target("share", _shares, _FROM_STORE, Shape.JSON, seal=_SEAL, share=60),
    Target("snapshot", reads(_snapshot), (ReplitreeError,), Shape.JSON, share=600),
    Target("error", reads(_error), (), Shape.JSON, share=400),
    Target("joint-body", reads(_joint_body), (BadInput,), Shape.JSON, share=400),
    Target("frozen", _frozen, (CorruptPart, UnsupportedFormat), Shape.JSON, share=200),
    Target("kept-definition", _kept_definition, (StoreError, UnsupportedFormat), Shape.JSON, share=200),
    Target("history", reads_file(_history, "history.jsonl"), (BadInput, UnsupportedFormat), Shape.LINES, share=60),
    Target("trace", reads_file(lambda path: read_traces(path.parent), "r1.jsonl"), (BadInput,), Shape.LINES, share=100),
    Target("outlines", reads_file(_outlines), (BadInput,), Shape.LINES, share=150),
    Target("tokens", reads(lambda data: decode_tokens(data, "tokens.json")), (BadInput,), Shape.JSON, share=150),
    Target("authorization", _authorizations, (NotAuthorized,), Shape.TEXT, share=300),
    Target("server-toml", reads_file(load_config, "server.toml"), (BadInput,), Shape.TEXT, share=150),
    Target("cluster", reads_file(lambda path: read_cluster_file(path.parent), "cluster.json"), (BadInput,), Shape.JSON),
    Target(
        "group",
        reads_file(lambda path: read_group(path.parent), "group.json"),
        (BadInput, UnsupportedFormat),
        Shape.JSON,
    ),
)
