"""A job whose driver has ended is one that a replica may give up."""

from __future__ import annotations

from pathlib import Path

from replitree.protocol.core.effects import Owner
from replitree.replica.uploads.uploads import SWEEP_S, Uploads
from replitree.wire.upload_life import SILENCE_S
from tests.shared.jobs import ended_process, let_age, let_all_age


class Clock:
    """Time that a test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_the_driver_of_a_job_is_a_process_that_has_ended() -> None:
    assert ended_process().probe() is Owner.DEAD


def test_of_uploads_those_are_given_up_that_were_let_age(tmp_path: Path) -> None:
    root, clock = tmp_path / "r1/data/tables/t/uploads", Clock()
    uploads = Uploads(root)
    (old, folder), (young, _) = uploads.open(ended_process()), uploads.open(ended_process())
    (folder / "1").mkdir()
    (folder / "1" / "data-0.parquet").write_bytes(b"x")
    let_age(folder)
    swept = Uploads(root, clock)
    clock.now = folder.stat().st_ctime + SWEEP_S + 1
    assert clock.now < folder.stat().st_ctime + SILENCE_S
    assert swept.sweep() == 1
    assert (uploads.has(old), uploads.has(young)) == (False, True)
    let_all_age(tmp_path)
    clock.now += SWEEP_S + 1
    assert swept.sweep() == 1
    assert not uploads.has(young)
