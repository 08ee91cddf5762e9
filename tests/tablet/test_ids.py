"""Ids are ordered as their packed forms are, and nothing is lost in packing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.tablet.group.ids import BlobId, Channel, Cookie, Generation, Step, TabletId, first_of, last_of, unpack
from tests.tablet.building import TABLET, at, data_id, entry_id


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Numbers of so many bits, small ones and the largest among them."""
    return st.integers(0, 3) | st.integers(0, (1 << bits) - 1) | st.just((1 << bits) - 1)


blob_ids = st.builds(
    BlobId,
    numbers(64).map(TabletId),
    numbers(8).map(Channel),
    numbers(32).map(Generation),
    numbers(32).map(Step),
    numbers(24).map(Cookie),
)


@given(blob_ids)
def test_packing_loses_nothing(blob: BlobId) -> None:
    assert unpack(blob.pack()) == blob


@given(blob_ids, blob_ids)
def test_packed_ids_are_ordered_as_ids(one: BlobId, other: BlobId) -> None:
    assert (one < other) == (one.pack() < other.pack())


def test_packed_form_is_frozen() -> None:
    assert data_id(2, 5, 3).pack().hex() == "0000000000000007" + "01" + "00000002" + "00000005" + "000003"


@pytest.mark.parametrize("blob", [entry_id(1 << 32, 1), entry_id(1, 1 << 32), entry_id(1, 1, 1 << 24), entry_id(-1, 1)])
def test_numbers_that_are_too_large_are_refused(blob: BlobId) -> None:
    with pytest.raises(OverflowError):
        blob.pack()


def test_an_interval_of_places_has_all_cookies() -> None:
    begin, end = first_of(TABLET, Channel(0), at(1, 2)), last_of(TABLET, Channel(0), at(1, 3))
    inside = [entry_id(1, 2), entry_id(1, 2, 1), entry_id(1, 3, 1)]
    assert all(begin <= blob <= end for blob in inside)
    assert not any(begin <= blob <= end for blob in (entry_id(1, 1, 1), entry_id(1, 4), data_id(1, 2)))


def test_names_for_people() -> None:
    assert str(entry_id(2, 5, 1)) == "7/0/2:5/1"
    assert str(at(2, 5)) == "2:5"
