"""A simulated year of merges: `year` simulates, `clickhouse` is the peer's selector.

Imports: `kit`.

Changes: with `docs/merge-selection.md`, whose figures and drawing come from here.
"""
