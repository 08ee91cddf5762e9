"""`replitree verify`: the commands of the checker, which `replitree.cli` finds by their entry point."""
