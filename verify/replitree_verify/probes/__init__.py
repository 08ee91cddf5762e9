"""Rare branches by name: a model that says it has seen none of those that it is for has checked nothing.

Imports: `process` and `world`.

Changes: freely; a name stays as long as a model or a seed counts on it.
"""
