"""What a sequential node will be called, asked of every provider of coordination alike."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from tests.coordination.conftest import Provider


def test_the_next_number_is_known_before_it_is_used(provider: Provider) -> None:
    zk, log = provider.connect(), f"{provider.root}/log"

    def commit(*operations: fx.Operation) -> object:
        return zk.perform(fx.Commit(*operations))

    assert zk.perform(fx.NextNumber(log)) is None
    commit(fx.Create(log))
    assert zk.perform(fx.NextNumber(log)) == 0
    for number in range(3):
        assert commit(fx.Create(f"{log}/log-", sequential=True)) == fx.Applied((f"{log}/log-{number:010d}",))
    assert zk.perform(fx.NextNumber(log)) == 3
    commit(fx.Delete(f"{log}/log-0000000000", fx.ANY_VERSION), fx.Delete(f"{log}/log-0000000002", fx.ANY_VERSION))
    commit(fx.Set(log, b"begins later", fx.ANY_VERSION))
    assert zk.perform(fx.NextNumber(log)) == 3
    commit(fx.Create(f"{log}/other", ephemeral=True))
    assert isinstance(commit(fx.Create(f"{log}/gone"), fx.Check(f"{log}/no", 0)), fx.Refused)
    assert zk.perform(fx.NextNumber(log)) == 4
    assert commit(fx.Create(f"{log}/log-", sequential=True)) == fx.Applied((f"{log}/log-0000000004",))
