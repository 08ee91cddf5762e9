"""Published models of the protocol, searched as they were published and mended, and the bridge from our procedures to them.

In a checkout only: `replitree verify` finds both by their entry points.

Imports: the checker and everything that it imports.

Changes: `packed` with the pinned figures of other checkers; `bridge` freely, with its tests.
"""
