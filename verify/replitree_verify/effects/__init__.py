"""What the checker knows of each type of effects: one table, and a new effect is one row of it.

`row` has the columns, `table` all rows and what is looked up in them while models are explored.  The rows stand by subject:
`tree` (coordination), `disk`, `memory`, `clients`, `mending`, `store` (shares and objects), `moving` (moves and uploads).

Imports: `outcomes`, `probes` and all that these may import.

Changes: with every pinned count: what a row says of reads, writes and footprints decides which states are left out.
"""
