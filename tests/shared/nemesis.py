"""Carries out a schedule in which the object store is hurt, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.faults.cluster import FaultCluster
from tests.faults.nemesis import Nemesis
from tests.faults.schedule import Strike
from tests.shared.places import StorePlace
from tests.shared.s3_proxy import Mix

USUAL = Mix.even(0.005)
"""What requests to the store suffer all the time."""


class SharedNemesis(Nemesis):
    """Hurts replicas and their object store.

    Parameters
    ----------
    cluster, place
        What is hurt.
    say
        Told what happens.
    """

    def __init__(self, cluster: FaultCluster, place: StorePlace, say: Callable[[str], object]) -> None:
        super().__init__(cluster, say=say)
        self._place = place
        place.hurt(USUAL)

    @contextmanager
    def _store_kill(self, _: Strike) -> Iterator[None]:
        self._place.kill()
        yield
        self._place.start()

    @contextmanager
    def _store_hurt(self, what: Strike) -> Iterator[None]:
        self._place.hurt(Mix.even(what.amount))
        yield
        self._place.hurt(USUAL)

    @contextmanager
    def _store_cut(self, _: Strike) -> Iterator[None]:
        self._place.cut(refusing=True)
        yield
        self._place.cut(refusing=False)
