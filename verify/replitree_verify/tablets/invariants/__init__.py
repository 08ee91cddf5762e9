"""What must hold of a tablet: `catalog` asks for all of it at every state.

`data` is about the groups of all channels, `kept` and `losses` about accepted losses, `aftermath` about a successor that
nothing disturbs.

Imports: `tablets.space` and all that `tablets.space` may import, `tablets.undisturbed` and `tablets.drafts`.

Changes: with `docs/tablet-invariants.md`, which has the numbers, and with a mutant that the new invariant catches.
"""
