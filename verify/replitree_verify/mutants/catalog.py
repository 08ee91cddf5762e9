"""Mutants: the production procedures with one rule broken, each with the invariant that must notice.

A checker that finds nothing wrong may have looked at nothing.  Each mutant names the model that catches it.  All are patches
(`replitree_verify.patches`); the last ones below are bugs that the explorer or the simulator found in this code base.
"""

from __future__ import annotations

from replitree_verify.mutants.mutant import Mutant, read_mutants

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *read_mutants("log"),
        *read_mutants("cleaning"),
        *read_mutants("recovering"),
        *read_mutants("joining"),
        *read_mutants("losing"),
        *read_mutants("quorum"),
        *read_mutants("upkeep"),
        *read_mutants("restoring"),
        *read_mutants("reads"),
        *read_mutants("mutating"),
        *read_mutants("rewriting"),
        *read_mutants("stored"),
        *read_mutants("stored_merges"),
        *read_mutants("rejoined"),
        *read_mutants("moved"),
        *read_mutants("uploads"),
        *read_mutants("streams"),
        *read_mutants("consumers"),
    )
}
"""Every mutant by its name.

Found in this code base: `unpulled-parts-set-aside`, `new-session-with-old-epoch`, `older-reload-wins`, `older-pull-wins`,
`drop-before-covered-insert`, `drop-of-named-parts`, `drop-leaves-covered-parts`, `result-fetched-into-nothing`,
`result-made-again`, `command-without-id`, `detach-without-inserts`, `merge-over-detached`, `drop-before-detach`,
`stands-again-in-doubt`, `recovery-goes-on-in-doubt`, `drop-goes-on-after-return`, `let-go-of-what-is-to-come`,
`tail-believed`, `removed-entry-awaited`,
`marked-though-joined-again`, `source-joined-again`, `published-fetched`.
"""
