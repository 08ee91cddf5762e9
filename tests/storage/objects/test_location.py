"""Where an object store is, and who may use it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from replitree.errors import BadInput, NotAuthorized, StoreError
from replitree.storage.objects import StoreLocation, open_store
from replitree.storage.objects.amazon import amazon_source
from replitree.storage.objects.identity import Credential, Keys
from replitree.storage.objects.location import CREDENTIALS_FILE_VARIABLE
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import Fault, S3Server, meeting


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://lake", StoreLocation("s3", "lake")),
        ("s3://lake/a/b/", StoreLocation("s3", "lake", "a/b")),
        (
            "s3://lake/a?endpoint=https://store:9000&region=eu-west-1",
            StoreLocation("s3", "lake", "a", "https://store:9000", "eu-west-1"),
        ),
        ("s3://lake?endpoint=http://[::1]:1", StoreLocation("s3", "lake", "", "http://[::1]:1")),
        (
            "s3://lake?endpoint=http://store&insecure=true",
            StoreLocation("s3", "lake", "", "http://store", insecure=True),
        ),
        ("file:///data/50%25", StoreLocation("file", "/data/50%")),
        ("file:///data/my%20objects", StoreLocation("file", "/data/my objects")),
        ("memory:///", StoreLocation("memory")),
    ],
)
def test_urls_are_taken_apart_and_put_together(url: str, expected: StoreLocation) -> None:
    assert StoreLocation.parse(url) == expected
    assert StoreLocation.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "no URL of an object store"),
        ("lake", "no URL of an object store"),
        ("abfs://lake", "no URL of an object store"),
        ("http://[", "no URL of an object store"),
        ("file://host/folder", "no URL of an object store"),
        ("file:///", "no URL of an object store"),
        ("memory:///x", "no URL of an object store"),
        ("s3://", "no name of a bucket"),
        ("s3://Lake", "no name of a bucket"),
        ("s3://ab", "no name of a bucket"),
        ("s3://lake/a b", "the prefix"),
        ("s3://lake/a/../b", "the prefix"),
        ("s3://lake?colour=red", "no option 'colour'"),
        ("s3://lake?endpoint=ftp://x", "must be http"),
        ("s3://lake?endpoint=http://x/path", "must be http"),
        ("s3://lake?endpoint=http://127.0.0]8333", "must be http"),
        ("s3://lake?endpoint=http://store:port", "must be http"),
        ("s3://lake?endpoint=http://store:65536", "must be http"),
        ("s3://lake?endpoint=http://store:9000", "unencrypted"),
    ],
)
def test_wrong_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        StoreLocation.parse(url)


@pytest.mark.parametrize(
    "url", ["s3://me:hidden@lake/a", "s3://lake?aws_secret_access_key=hidden", "s3://lake?secret=hidden&access_key=x"]
)
def test_credentials_do_not_belong_into_a_url(url: str) -> None:
    with pytest.raises(BadInput, match="AWS_SECRET_ACCESS_KEY") as caught:
        StoreLocation.parse(url)
    assert "hidden" not in str(caught.value)


def find_keys(environment: Mapping[str, str]) -> Credential:
    return amazon_source(environment, "us-east-1").current()


def test_credentials_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = who\naws_secret_access_key = hid%den\naws_session_token = for a while\n"
    )
    assert find_keys({CREDENTIALS_FILE_VARIABLE: str(file)}) == Keys("who", "hid%den", "for a while")
    assert find_keys({"AWS_SHARED_CREDENTIALS_FILE": str(file)}) == Keys("who", "hid%den", "for a while")
    assert find_keys(KEYS | {CREDENTIALS_FILE_VARIABLE: str(file)}) == Keys("test-access", "test-secret")


@pytest.mark.parametrize("text", [None, "", "[default]\naws_access_key_id = hidden\n", "hidden", "[other]\n"])
def test_without_credentials_it_is_said_what_to_do(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)
    with pytest.raises(NotAuthorized, match="aws_secret_access_key") as caught:
        find_keys({CREDENTIALS_FILE_VARIABLE: str(file)})
    assert "hidden" not in str(caught.value)
    with pytest.raises(NotAuthorized, match="set AWS_ACCESS_KEY_ID"):
        find_keys({})


def test_no_text_shows_a_secret(server: S3Server) -> None:
    keys = find_keys(KEYS)
    store = open_store(server.url(), environment=KEYS)
    for text in (repr(keys), str(keys), repr(store), str(store), store.name):
        assert "test-secret" not in text
    store.create("one", b"x")
    assert "test-access" in server.state.secrets[-1]
    assert "test-secret" not in server.state.secrets[-1]


def test_a_folder_that_cant_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="can't make the folder"):
        open_store(f"file://{tmp_path}/file/objects")


def test_the_environment_of_the_process_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "REPLITREE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NotAuthorized):
        open_store("s3://lake")


def test_credentials_that_were_replaced_in_their_file_are_found_when_the_old_ones_are_refused(
    server: S3Server, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    _write_keys(file, KEYS | {"AWS_SECRET_ACCESS_KEY": "first"})
    store = open_store(server.url(), environment={CREDENTIALS_FILE_VARIABLE: str(file)})
    store.create("a", b"1")
    _write_keys(file, KEYS)
    server.state.faults.append(("PUT", Fault.DENY))
    store.create("b", b"2")
    server.state.faults.append(("PUT", Fault.DENY))
    with pytest.raises(NotAuthorized, match="refuses"):
        store.create("c", b"3")
    assert (store.get("b"), store.get("c")) == (b"2", None)


def test_of_two_requests_that_are_refused_at_once_both_find_the_new_credentials(
    server: S3Server, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    _write_keys(file, KEYS | {"AWS_SECRET_ACCESS_KEY": "first"})
    store = open_store(server.url(), environment={CREDENTIALS_FILE_VARIABLE: str(file)})
    _write_keys(file, KEYS)
    server.state.arrives = meeting(2)
    server.state.faults += [("PUT", Fault.DENY)] * 2
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(store.create, key, b"1") for key in ("a", "b")]:
            each.result(60)
    server.state.arrives = lambda _: None
    assert (store.get("a"), store.get("b")) == (b"1", b"1")
    assert len([each for each in server.state.requests if each.startswith("PUT")]) == 4


def _write_keys(file: Path, keys: Mapping[str, str]) -> None:
    file.write_text("[default]\n" + "".join(f"{name.lower()} = {value}\n" for name, value in keys.items()))


def test_a_file_that_is_not_there_is_not_taken_for_a_missing_bucket(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        open_store(f"file://{tmp_path}").create("a", tmp_path / "no-such-file")
