"""What every object store must do; run on those in memory and in a folder, on a bucket, and on a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from replitree.errors import BadInput, StoreError
from replitree.storage.objects import ObjectChanged, ObjectExists, ObjectStore, probe, probe_replacing, store_id
from replitree.storage.objects import store as module


class ObjectStoreConformance:
    """Tests that take a `store`, which is empty."""

    def test_what_was_created_is_read_as_it_was(self, store: ObjectStore) -> None:
        store.create("parts/a/data.parquet", b"0123456789")
        assert store.get("parts/a/data.parquet") == b"0123456789"
        assert store.get_range("parts/a/data.parquet", 2, 3) == b"234"
        assert store.get_range("parts/a/data.parquet", 7, 3) == b"789"
        assert store.get_range("parts/a/data.parquet", 4, 0) == b""
        info = store.head("parts/a/data.parquet")
        assert info is not None
        assert (info.key, info.bytes) == ("parts/a/data.parquet", 10)
        assert info.modified.tzinfo is not None

    def test_an_empty_object_is_there(self, store: ObjectStore) -> None:
        store.create("empty", b"")
        assert store.get("empty") == b""

    def test_what_is_not_there_is_none(self, store: ObjectStore) -> None:
        assert store.get("nothing") is None
        assert store.head("nothing") is None
        assert store.get_range("nothing", 0, 1) is None
        assert store.get_range("nothing", 0, 0) is None
        assert list(store.list("nothing")) == []

    def test_a_range_beyond_the_end_is_an_error(self, store: ObjectStore) -> None:
        store.create("short", b"abc")
        for first, size in [(0, 4), (2, 2), (3, 1), (9, 1)]:
            with pytest.raises(StoreError, match=f"ends before byte {first + size}"):
                store.get_range("short", first, size)

    def test_an_object_is_never_replaced(self, store: ObjectStore) -> None:
        store.create("one", b"first")
        for data in (b"second", b"first"):
            with pytest.raises(ObjectExists, match="another object one"):
                store.create("one", data)
        assert store.get("one") == b"first"

    def test_a_large_object_is_never_replaced(
        self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PIECES_BYTES", 4)
        store.create("large", b"first")
        (tmp_path / "rows").write_bytes(b"other")
        for data in (tmp_path / "rows", b"first"):
            with pytest.raises(ObjectExists, match="another object large"):
                store.create("large", data)
        assert store.get("large") == b"first"

    def test_one_of_many_creates_an_object(self, store: ObjectStore) -> None:
        def create(number: int) -> bool:
            try:
                store.create("raced", str(number).encode())
            except ObjectExists:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = [number for number, created in enumerate(pool.map(create, range(8))) if created]
        assert len(won) == 1
        assert store.get("raced") == str(won[0]).encode()

    def test_files_become_objects_in_pieces_too(
        self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "rows"
        file.write_bytes(bytes(range(256)) * 60_000)
        store.create("whole", file)
        monkeypatch.setattr(module, "PIECES_BYTES", 1000)
        monkeypatch.setattr(module, "PIECE_BYTES", 5 << 20)
        store.create("pieces", file)
        assert store.get("whole") == store.get("pieces") == file.read_bytes()

    def test_a_listing_has_what_is_below_a_prefix(self, store: ObjectStore) -> None:
        keys = [f"parts/{letter}/{number}" for letter in "abc" for number in range(4)]
        for key in [*keys, "partsbeside/x", "other"]:
            store.create(key, key.encode())
        listed = list(store.list("parts"))
        assert sorted(info.key for info in listed) == keys
        assert {info.bytes for info in listed} == {9}
        assert [info.key for info in store.list("parts/b")] == keys[4:8] or not store.name.startswith("s3:")
        assert {info.key for info in store.list("parts", after="parts/b/2")} == set(keys[7:])
        assert len(list(store.list())) == 14

    def test_deleting_may_be_repeated(self, store: ObjectStore) -> None:
        for key in ("a", "b", "c"):
            store.create(key, b"x")
        store.delete(["a", "gone", "b"])
        store.delete(["a", "b"])
        store.delete([])
        assert [info.key for info in store.list()] == ["c"]
        store.create("a", b"again")
        assert store.get("a") == b"again"

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "ä", "a b", "a\n", "a?x", "a%2e"])
    def test_other_keys_are_refused(self, store: ObjectStore, key: str) -> None:
        for call in (store.get, store.head, lambda key: store.create(key, b""), lambda key: store.delete([key])):
            with pytest.raises(BadInput, match="no key of an object"):
                call(key)
        with pytest.raises(BadInput, match="no key of an object"):
            store.get_range(key, 0, 1)

    def test_it_can_be_used(self, store: ObjectStore) -> None:
        store.create("ours", b"stays")
        probe(store)
        assert [info.key for info in store.list()] == ["ours"]

    def test_it_has_one_id_for_ever(self, store: ObjectStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            ids = set(pool.map(lambda _: store_id(store), range(4)))
        assert ids == {store_id(store)}

    def test_an_object_is_replaced_as_it_was_read(self, store: ObjectStore) -> None:
        assert store.get_tagged("state") is None
        store.create("state", b"one")
        first = store.get_tagged("state")
        assert first is not None
        assert first.data == b"one"
        store.replace("state", b"two", first.tag)
        with pytest.raises(ObjectChanged, match="not as it was"):
            store.replace("state", b"three", first.tag)
        second = store.get_tagged("state")
        assert second is not None
        assert second.data == b"two"
        store.delete(["state"])
        with pytest.raises(ObjectChanged):
            store.replace("state", b"three", second.tag)
        assert store.get("state") is None

    def test_one_of_many_replaces_an_object(self, store: ObjectStore) -> None:
        store.create("counter", b"0")

        def add(_: int) -> None:
            while True:
                found = store.get_tagged("counter")
                assert found is not None
                with suppress(ObjectChanged):
                    return store.replace("counter", b"%d" % (int(found.data) + 1), found.tag)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add, range(8)))
        assert store.get("counter") == b"8"

    def test_it_can_be_used_for_what_is_replaced(self, store: ObjectStore) -> None:
        probe_replacing(store)
        assert list(store.list()) == []
