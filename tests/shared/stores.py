"""The object stores that tests run on: a folder, a real S3 server, and that server behind a proxy that hurts requests.

Whoever takes the fixture `store_url` has a folder, and at night also a store with faults; a test with `on` runs on the stores
that this names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.shared.s3_proxy import Ill, Mix, S3Proxy
from tests.storage.objects.seaweed import KEYS, Seaweed

FOLDER, BUCKET, FAULTY = "folder", "bucket", "faulty"

HURT_SHARE = 0.02
"""Of each ill so many requests to a store with faults."""

HURT = Mix(tuple((ill, HURT_SHARE) for ill in Ill if ill is not Ill.LATE), delay_s=0.3)
"""None comes late: that may leave objects of which nobody knows, for fsck (`tests.shared.rounds`), and tests count objects."""

_numbers = itertools.count()


def on(*kinds: str, at_night: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Let a test run on stores of these kinds, and at night on more."""
    return pytest.mark.parametrize("store_url", kinds_of(*kinds, at_night=at_night), indirect=True)


def kinds_of(*kinds: str, at_night: Sequence[str] = ()) -> list[ParameterSet]:
    """Return what parametrizes the fixture `store_url`; what needs a server is a `system` test."""
    marks = {FOLDER: (), BUCKET: (pytest.mark.system,), FAULTY: (pytest.mark.system,)}
    some = [pytest.param(kind, marks=marks[kind]) for kind in kinds]
    return [*some, *(pytest.param(kind, marks=(*marks[kind], pytest.mark.nightly)) for kind in at_night)]


@contextmanager
def credentials() -> Iterator[None]:
    """Give this process, and all that it starts meanwhile, the credentials of the server."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in KEYS.items():
            environment.setenv(name, value)
        yield


@contextmanager
def empty_store(kind: str, folder: Path, server: Callable[[], Seaweed]) -> Iterator[str]:
    """Give the URL of an empty store.

    Parameters
    ----------
    kind
        `FOLDER`, `BUCKET` or `FAULTY`.
    folder
        Where a folder is made.
    server
        Gives the server, which runs.
    """
    prefix = f"test-{next(_numbers)}"
    if kind == FOLDER:
        yield f"file://{folder}/objects"
    elif kind == BUCKET:
        yield server().url(prefix)
    else:
        proxy = S3Proxy(server().port)
        proxy.mix = HURT
        yield server().url(prefix, proxy.endpoint)
        proxy.close()


__all__ = ["BUCKET", "FAULTY", "FOLDER", "HURT", "credentials", "empty_store", "kinds_of", "on"]
