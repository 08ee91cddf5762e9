"""Benchmarks: this project and ClickHouse on the same ZooKeeper, in the same run, round by round in turn."""
