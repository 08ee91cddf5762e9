"""Messages between client and replica: identities, versions, errors, upload and block ids; histories.

Imports: everything below the replica.

Changes: a changed name or value must still be understood by the version before.
"""
