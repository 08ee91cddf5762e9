"""Commands that run servers, and commands for operators: status, doctor, fsck, repair, restore.

Imports: the modules beside the rooms; the client; a server only in the command that runs it; no other room.

Changes: freely; a command prints and never decides, and its options are documented.
"""
