"""What `replitree up` shows of its replicas."""

from __future__ import annotations

from pathlib import Path

from replitree.cli.cluster.up import logged_address

READY = b'{"ready":true,"address":"127.0.0.1:%d"}\n'


def test_an_address_is_found_after_the_log_was_rotated(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b'{"event":"served"}\n')
    (tmp_path / "server.log.1").write_bytes(b'{"event":"served"}\n' + READY % 1 + READY % 2)
    (tmp_path / "server.log.2").write_bytes(READY % 3)
    assert logged_address(log, 7) == "127.0.0.1:2"


def test_an_address_that_is_logged_later_is_found_later_and_then_remembered(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert logged_address(log, 8) == ""
    log.write_bytes(READY % 4)
    assert logged_address(log, 8) == "127.0.0.1:4"
    log.unlink()
    assert logged_address(log, 8) == "127.0.0.1:4"
