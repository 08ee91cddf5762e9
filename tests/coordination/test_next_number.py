"""What a sequential node will be called, asked of every provider of coordination alike."""

from __future__ import annotations

from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Commit,
    Create,
    Delete,
    NextNumber,
    Operation,
    Refused,
    Set,
)
from tests.coordination.conftest import Provider


def test_the_next_number_is_known_before_it_is_used(provider: Provider) -> None:
    zk, log = provider.connect(), f"{provider.root}/log"

    def commit(*operations: Operation) -> object:
        return zk.perform(Commit(*operations))

    assert zk.perform(NextNumber(log)) is None
    commit(Create(log))
    assert zk.perform(NextNumber(log)) == 0
    for number in range(3):
        assert commit(Create(f"{log}/log-", sequential=True)) == Applied((f"{log}/log-{number:010d}",))
    assert zk.perform(NextNumber(log)) == 3
    commit(Delete(f"{log}/log-0000000000", ANY_VERSION), Delete(f"{log}/log-0000000002", ANY_VERSION))
    commit(Set(log, b"begins later", ANY_VERSION))
    assert zk.perform(NextNumber(log)) == 3
    commit(Create(f"{log}/other", ephemeral=True))
    assert isinstance(commit(Create(f"{log}/gone"), Check(f"{log}/no", 0)), Refused)
    assert zk.perform(NextNumber(log)) == 4
    assert commit(Create(f"{log}/log-", sequential=True)) == Applied((f"{log}/log-0000000004",))
