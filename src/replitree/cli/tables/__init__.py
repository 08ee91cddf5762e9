"""Commands on tables and their rows: create, insert, query, change, merge, detach.

Imports: the modules beside the rooms (`options`, `output`), and the client; no other room.

Changes: freely; a command prints and never decides, and its options are documented.
"""
