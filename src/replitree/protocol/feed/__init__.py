"""Feed: by which rows each entry of the log changes what reads show.  Rows do not exist here, only the parts that have them.

Imports: `core`.

Changes: with the oracle of `tests/protocol/feed_oracle.py`; F1 and F3 to F6 have mutants that are caught.
The models `feed_*` run it with the code that keeps and gives the feed, and have mutants of F1 to F5 and F7.
"""
