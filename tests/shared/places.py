"""Object stores of a run that can be taken away and hurt: SeaweedFS behind a proxy, or a folder.

What is hurt of a folder is less: it can only be away, as a disk that is not mounted.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from replitree.storage.objects import ObjectStore, open_store
from tests.shared.s3_proxy import CALM, Mix, S3Proxy
from tests.storage.objects.seaweed import KEYS, Seaweed
from tests.waiting import wait_for

PREFIX = "rounds"
KINDS = ("seaweed", "folder")


class StorePlace(Protocol):
    """A store that a run can hurt."""

    url: str
    """What the table is made with."""

    def kill(self) -> None:
        """Take it away at once."""

    def start(self) -> None:
        """Bring it back; nothing when it is there."""

    def hurt(self, mix: Mix) -> None:
        """Let requests suffer."""

    def cut(self, *, refusing: bool) -> None:
        """Let no request through, or all."""

    def calm(self) -> None:
        """Let nothing suffer any more, and wait until what is late has arrived."""

    def open(self) -> ObjectStore:
        """Open it, past what hurts."""

    def done(self) -> dict[str, int]:
        """Return how many requests suffered what."""

    def close(self) -> None:
        """End it; what it has stays in its folder."""


class SeaweedPlace(StorePlace):
    """A real server, behind a proxy.

    Parameters
    ----------
    folder
        Where its data lie; must exist.
    seed
        Of what requests suffer.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._server = Seaweed(folder)
        self._is_up = False
        self.start()
        self.proxy = S3Proxy(self._server.port, seed)
        self.url = self._server.url(PREFIX, self.proxy.endpoint)

    @override
    def kill(self) -> None:
        self._server.kill()
        self._is_up = False

    @override
    def start(self) -> None:
        if not self._is_up:
            self._server.start()
            self._is_up = True

    @override
    def hurt(self, mix: Mix) -> None:
        self.proxy.mix = mix

    @override
    def cut(self, *, refusing: bool) -> None:
        self.proxy.is_refusing = refusing

    @override
    def calm(self) -> None:
        self.start()
        self.proxy.mix, self.proxy.is_refusing = CALM, False
        wait_for(lambda: not self.proxy.late, "no request is late any more")

    @override
    def open(self) -> ObjectStore:
        return open_store(self._server.url(PREFIX), environment=KEYS)

    @override
    def done(self) -> dict[str, int]:
        done: Counter[str] = Counter({ill.value if ill else "passed": count for ill, count in self.proxy.done.items()})
        return dict(sorted(done.items()))

    @override
    def close(self) -> None:
        self.proxy.close()
        self._server.kill()


class FolderPlace(StorePlace):
    """A folder.

    Parameters
    ----------
    folder
        Where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self._objects, self._away = folder / "objects", folder / "away"
        self._objects.mkdir()
        self.url = f"file://{self._objects}"

    @override
    def kill(self) -> None:
        if not self._away.exists():
            self._objects.rename(self._away)

    @override
    def start(self) -> None:
        if self._away.exists():
            if (
                self._objects.exists()
            ):  # somebody has opened it anew meanwhile: that is another store, and not the table's
                assert not (self._objects / "tables").exists(), "something was put where the store is not"
                shutil.rmtree(self._objects)
            self._away.rename(self._objects)

    @override
    def hurt(self, mix: Mix) -> None:
        pass

    @override
    def cut(self, *, refusing: bool) -> None:
        if refusing:
            self.kill()
        else:
            self.start()

    @override
    def calm(self) -> None:
        self.start()

    @override
    def open(self) -> ObjectStore:
        return open_store(self.url)

    @override
    def done(self) -> dict[str, int]:
        return {}

    @override
    def close(self) -> None:
        self.start()


def open_place(kind: str, folder: Path, seed: int) -> StorePlace:
    """Make a store of a kind below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return SeaweedPlace(folder, seed) if kind == "seaweed" else FolderPlace(folder)
