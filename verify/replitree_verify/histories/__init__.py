"""Histories: what clients asked and heard, written down by them and judged afterwards.

A history is a file of operations (`wire.history_format`), written by `wire.history_recorder`.  `reading` makes columns of it;
`judge.check` finds what was inserted (`elements`), looks at every read at once (`cover`, `order`), applies the rules (`rules`,
`screen`), names what is wrong with the fewest operations that show it (`explain`), and searches where the rules do not decide
(`search`).

Imports: the product's `wire`; nothing of the checker.

Changes: with the tests of histories that are known to be wrong, each of which must be found.
"""
