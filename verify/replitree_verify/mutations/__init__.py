"""Mutations: how the stages that ship are broken, by changed effects or exchanged functions of the protocol.

Imports: `process` and `world`.

Changes: with the procedures that they break.
"""
