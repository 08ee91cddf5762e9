"""Traces and conversations: what threads asked and heard, as text that a person can read.

Imports: `engine` and all that `engine` may import.

Changes: with the golden conversations, whose difference is reviewed.
"""
