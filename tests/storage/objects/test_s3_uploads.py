"""Uploads that were begun in a bucket and not ended are found and aborted: on a server of ours, and on a real one."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from replitree.errors import NotAuthorized, StoreError
from replitree.protocol.rescue.fsck_look import MultipartUpload
from replitree.protocol.shares.share import ShareId
from replitree.storage.objects import StoreLocation, open_store
from replitree.storage.objects.bucket_uploads import MultipartUploads, UploadsNotListed
from replitree.storage.objects.identity import BearerToken, Credential, Keys
from replitree.storage.shares.inventory import Inventory
from tests.storage.objects.gcs_server import TOKEN, GcsServer
from tests.storage.objects.s3_server import BUCKET, Fault, S3Server
from tests.storage.objects.seaweed import KEYS, Seaweed


def ours() -> Credential:
    return Keys(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"])


NAMES = [f"tables/t1/{number:032x}/data-{number}.parquet" for number in range(5)]


@pytest.fixture(params=["ours", pytest.param("seaweed", marks=pytest.mark.system)])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server of each kind, empty."""
    if request.param == "ours":
        with S3Server() as server:
            yield server.endpoint
    else:
        with Seaweed(tmp_path) as seaweed:
            yield seaweed.endpoint


def place(endpoint: str, prefix: str = "a/b") -> StoreLocation:
    return StoreLocation.parse(f"s3://{BUCKET}/{prefix}?endpoint={endpoint}")


def begin(endpoint: str, *keys: str) -> None:
    """Begin uploads, as a process that is killed in the middle of them does."""
    for key in keys:
        path, query = f"/{BUCKET}/a/b/{key}", "uploads="
        connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=30)
        connection.request(
            "POST", f"{path}?{query}", headers=MultipartUploads(place(endpoint), ours).signed("POST", path, query)
        )
        assert connection.getresponse().status == http.client.OK
        connection.close()


def test_what_was_begun_is_listed_and_aborted(endpoint: str) -> None:
    begin(endpoint, *NAMES, "tables/t2/x/data-0.parquet")
    uploads = MultipartUploads(place(endpoint), ours)
    begun = sorted(uploads.begun("tables/t1/"), key=lambda each: each.key)
    assert [each.key for each in begun] == NAMES
    assert all(each.begun.tzinfo is not None for each in begun)
    for each in begun[:3]:
        uploads.abort(each.key, each.upload)
        uploads.abort(each.key, each.upload)
    assert sorted(each.key for each in uploads.begun("tables/t1/")) == NAMES[3:]
    assert list(MultipartUploads(place(endpoint, "a/c"), ours).begun("tables/")) == []


def test_what_was_begun_at_google_is_listed_and_aborted_with_a_token() -> None:
    with GcsServer() as server:
        server.state.tokens = {TOKEN}
        location = StoreLocation.parse(server.url("a/b"))
        uploads = MultipartUploads(location, lambda: BearerToken(TOKEN))
        for key in NAMES:
            path, query = f"/{BUCKET}/a/b/{key}", "uploads="
            connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
            connection.request("POST", f"{path}?{query}", headers=uploads.signed("POST", path, query))
            assert connection.getresponse().status == http.client.OK
            connection.close()
        begun = list(uploads.begun("tables/t1/"))
        assert sorted(each.key for each in begun) == NAMES
        for each in begun:
            uploads.abort(each.key, each.upload)
        assert list(uploads.begun("tables/t1/")) == []
        with pytest.raises(NotAuthorized, match="refuses"):
            list(MultipartUploads(location, lambda: BearerToken("another")).begun("tables/"))


def test_an_inventory_tells_what_was_begun_and_aborts_it(endpoint: str) -> None:
    begin(endpoint, NAMES[0])
    location = place(endpoint)
    store = open_store(location, environment=KEYS)
    inventory = Inventory(store, location, "t1", MultipartUploads(location, ours))
    (found,) = inventory.listing().uploads
    assert (found.share, found.file) == (ShareId("0" * 32), "data-0.parquet")
    assert isinstance(found, MultipartUpload)
    inventory.abort(found)
    listing = inventory.listing()
    assert (listing.uploads, listing.not_judged) == ((), "")


@pytest.mark.system
def test_a_wrong_secret_is_refused(tmp_path: Path) -> None:
    with Seaweed(tmp_path) as seaweed:
        wrong = MultipartUploads(place(seaweed.endpoint), lambda: Keys(KEYS["AWS_ACCESS_KEY_ID"], "wrong"))
        with pytest.raises(NotAuthorized, match="refuses"):
            list(wrong.begun("tables/"))


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(StoreError, match="refused; try again"):
        list(MultipartUploads(place("http://127.0.0.1:1"), ours, wait=lambda _: None).begun("tables/"))


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.SLOW_DOWN])
def test_a_lost_answer_is_asked_for_again(fault: Fault) -> None:
    with S3Server() as server:
        begin(server.endpoint, *NAMES)
        server.state.faults += [("GET", fault), ("DELETE", fault)]
        uploads = MultipartUploads(place(server.endpoint), ours, wait=lambda _: None)
        for each in list(uploads.begun("tables/")):
            uploads.abort(each.key, each.upload)
        assert server.state.uploads == {}


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_that_does_not_list_uploads_is_not_said_to_have_none(status: int) -> None:
    with S3Server() as server:
        begin(server.endpoint, NAMES[0])
        location = place(server.endpoint)
        uploads = MultipartUploads(location, ours)
        (begun,) = uploads.begun("tables/t1/")
        server.state.refuses_uploads = status
        with pytest.raises(UploadsNotListed, match=f"does not list uploads in pieces: {status} NotOffered"):
            list(uploads.begun("tables/t1/"))
        listing = Inventory(open_store(location, environment=KEYS), location, "t1", uploads).listing()
        assert listing.uploads == ()
        assert "let a rule of the bucket end them" in listing.not_judged
        if status == 404:
            uploads.abort(begun.key, begun.upload)  # it has ended
        else:
            with pytest.raises(StoreError, match=f"does not abort uploads in pieces: {status} NotOffered"):
                uploads.abort(begun.key, begun.upload)
