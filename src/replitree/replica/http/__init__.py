"""HTTP: the fast path, the general server, checks of every request, and what is asked of tables through it.

Imports: every room of the replica.

Changes: freely, with the tests of hostile requests.
"""
