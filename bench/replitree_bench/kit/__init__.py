"""What the benchmarks have in common: the two systems, their clients, and the report of both.

`systems` is what a workload talks to, `clickhouse` starts the peer, `clients` has the threads that wait for answers,
`report` makes medians and ratios of rounds, `svg` draws them.

Imports: the product.

Changes: freely, with `tests/cli/test_bench.py`; a changed measure makes earlier figures incomparable.
"""
