"""Coordination urls: what is taken, what is refused, and that a password shows nowhere."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.coordination.url import AUTH_VARIABLE, CoordinationUrl, Credentials, parse_url
from replitree.errors import BadInput


@pytest.mark.parametrize(
    ("text", "hosts", "root"),
    [
        ("zk://localhost", (("localhost", 2181),), "/replitree"),
        ("zk://localhost/", (("localhost", 2181),), "/replitree"),
        ("zk://10.0.0.1:2182/lake", (("10.0.0.1", 2182),), "/lake"),
        ("zk://a.example:1,b-1:2,c/x/y/", (("a.example", 1), ("b-1", 2), ("c", 2181)), "/x/y"),
        ("zk://[::1]:2181/x", (("[::1]", 2181),), "/x"),
    ],
)
def test_urls_that_are_taken(text: str, hosts: tuple[tuple[str, int], ...], root: str) -> None:
    assert parse_url(text, auth="") == CoordinationUrl(hosts, root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "starts with zk://"),
        ("http://localhost", "starts with zk://"),
        ("localhost:2181", "starts with zk://"),
        ("zk://", "host:port"),
        ("zk:///x", "host:port"),
        ("zk://a,,b", "host:port"),
        ("zk://a:b", "host:port"),
        ("zk://a:", "host:port"),
        ("zk://a:0", "between 1 and 65535"),
        ("zk://a:65536", "between 1 and 65535"),
        ("zk://a b", "host:port"),
        ("zk://a//x", "path"),
        ("zk://a/x//y", "path"),
        ("zk://a/x/../y", "path"),
        ("zk://a/./y", "path"),
        ("zk://a/zookeeper/x", "path"),
        ("zk://a/x\ny", "path"),
        ("zk://user@a/x", "user:password"),
        ("zk://:secret@a/x", "user:password"),
        ("zk://user:@a/x", "user:password"),
        ("zk://us%3Aer:secret@a/x", "user:password"),
    ],
)
def test_urls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_url(text, auth="")


@pytest.mark.parametrize(
    ("secret", "password"),
    [("secret", "secret"), ("se%40c%2Fr%3Aet", "se@c/r:et"), ("se@cret", "se@cret"), ("a:b", "a:b"), ("a/b", "a/b")],
)
def test_credentials_of_a_url(secret: str, password: str) -> None:
    url = parse_url(f"zk://me:{secret}@host:1/x", auth="not:used")
    assert url.credentials == Credentials("me", password)
    assert str(url) == "zk://me@host:1/x"
    assert url.servers == "host:1"


def test_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTH_VARIABLE, "me:se%40cret")
    assert parse_url("zk://host").credentials == Credentials("me", "se%40cret")  # as it stands
    assert parse_url("zk://you:other@host").credentials == Credentials("you", "other")
    monkeypatch.setenv(AUTH_VARIABLE, "nonsense")
    with pytest.raises(BadInput, match=AUTH_VARIABLE):
        parse_url("zk://host")
    monkeypatch.delenv(AUTH_VARIABLE)
    assert parse_url("zk://host").credentials is None


SECRET = "tr0ub4dor"


@pytest.mark.parametrize("text", [f"zk://me:{SECRET}@h/x", f"zk://me:{SECRET}@h:1,i:2"])
def test_a_password_does_not_show(text: str) -> None:
    url = parse_url(text)
    assert SECRET not in f"{url} {url!r} {url.credentials} {url.credentials!r} {url.servers}"


@given(
    st.sampled_from(
        ["zk://me:{}", "zk://me:{}/x", "zk://{}:{}@", "zk://me:{}@h:x", "zk://{}@h", "http://me:{}@h", "zk://m:{}@h//"]
    ),
    st.sampled_from(["", "/", "@", ":", "%"]),
)
def test_a_wrong_url_does_not_show_its_password(form: str, odd: str) -> None:
    try:
        parse_url(form.format(SECRET + odd, SECRET), auth="")
    except BadInput:
        assert SECRET not in traceback.format_exc().split("Error", 1)[-1].rpartition("BadInput")[2]
