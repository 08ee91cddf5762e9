"""Which role each route needs: the whole decision, in one table.

``read`` shows rows and states and keeps them for readers.  ``write`` changes rows: inserts, mutations, rewrites, consumers.
``admin`` changes what a table is and where it lies, and drops what can't be had back.  `/health` needs no token.

The server refuses a route that is not in the table: `permit` fails, and a test compares the table with the router's.
"""

from __future__ import annotations

from replitree.replica.kit.tokens import Grant
from replitree.wire.named_token import Role

TABLE_PATH = "/v1/tables/{table}"
_PART = f"{TABLE_PATH}/parts/{{part}}"
_UPLOAD = f"{TABLE_PATH}/uploads/{{upload}}"
_STAGING = f"{TABLE_PATH}/prepared/{{staging}}"

ROLES: dict[tuple[str, str], Role] = {
    # the server
    ("GET", "/metrics"): Role.READ,
    ("GET", "/v1/status"): Role.READ,
    ("POST", "/v1/stores/check"): Role.ADMIN,
    # reads
    ("GET", f"{TABLE_PATH}/status"): Role.READ,
    ("GET", f"{TABLE_PATH}/snapshot"): Role.READ,
    ("GET", f"{TABLE_PATH}/cut"): Role.READ,
    ("POST", f"{TABLE_PATH}/cut"): Role.READ,
    ("GET", f"{TABLE_PATH}/cut/snapshot"): Role.READ,
    ("POST", f"{TABLE_PATH}/cut/shards"): Role.READ,
    ("GET", f"{TABLE_PATH}/written-by"): Role.READ,
    ("GET", f"{TABLE_PATH}/feed"): Role.READ,
    ("GET", f"{TABLE_PATH}/feed/end"): Role.READ,
    ("GET", f"{TABLE_PATH}/feed/positions"): Role.READ,
    ("GET", f"{TABLE_PATH}/earlier"): Role.READ,
    ("POST", f"{TABLE_PATH}/leases/{{lease}}"): Role.READ,
    ("DELETE", f"{TABLE_PATH}/leases/{{lease}}"): Role.READ,
    ("GET", f"{TABLE_PATH}/bundle"): Role.READ,
    ("GET", f"{_PART}/manifest"): Role.READ,
    ("GET", f"{_PART}/files/{{file}}"): Role.READ,
    ("GET", f"{_PART}/files/{{file}}/sums"): Role.READ,
    # A reader that has met a damaged copy lets the replica look at it.
    ("POST", f"{_PART}/check"): Role.READ,
    ("GET", f"{TABLE_PATH}/check"): Role.READ,
    ("GET", f"{TABLE_PATH}/shares"): Role.READ,
    ("GET", f"{TABLE_PATH}/commands/{{index}}"): Role.READ,
    ("GET", f"{TABLE_PATH}/shards/commands/{{id}}"): Role.READ,
    ("GET", f"{TABLE_PATH}/mutations"): Role.READ,
    ("POST", f"{TABLE_PATH}/ttl/plan"): Role.READ,
    ("GET", f"{TABLE_PATH}/streams"): Role.READ,
    ("GET", f"{TABLE_PATH}/detached"): Role.READ,
    ("GET", f"{TABLE_PATH}/detached/{{name}}/rows"): Role.READ,
    # changes of rows
    ("POST", f"{TABLE_PATH}/insert"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/uploads"): Role.WRITE,
    ("PUT", f"{_UPLOAD}/{{partition}}/{{file}}"): Role.WRITE,
    ("PUT", f"{_UPLOAD}/tasks/{{attempt}}/{{partition}}/{{file}}"): Role.WRITE,
    ("POST", f"{_UPLOAD}/gather"): Role.WRITE,
    ("POST", _UPLOAD): Role.WRITE,
    ("DELETE", _UPLOAD): Role.WRITE,
    ("POST", f"{_UPLOAD}/objects"): Role.WRITE,
    ("POST", f"{_UPLOAD}/commit"): Role.WRITE,
    ("POST", f"{_UPLOAD}/prepare"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/mutations"): Role.WRITE,
    ("DELETE", f"{TABLE_PATH}/mutations/{{index}}"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/shards/scope"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/rewrites/begin"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/rewrites/adopt"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/rewrites/commit"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/rewrites/prepare"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/prepared"): Role.WRITE,
    ("POST", _STAGING): Role.WRITE,
    ("DELETE", _STAGING): Role.WRITE,
    ("GET", f"{_STAGING}/sum"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/joint"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/joint/overwrite"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/joint/rewrite"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/joint/rows"): Role.WRITE,
    ("POST", f"{TABLE_PATH}/consumers"): Role.WRITE,
    ("PUT", f"{TABLE_PATH}/consumers/{{name}}"): Role.WRITE,
    ("DELETE", f"{TABLE_PATH}/consumers/{{name}}"): Role.WRITE,
    # changes of the table, and what can't be had back
    ("POST", f"{TABLE_PATH}/check"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/attach"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/drop"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/alter"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/storage"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/keep"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/feed"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/ttl"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/bloom"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/optimize"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/merges/plan"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/merges/result"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/merges/{{wish}}"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/tags"): Role.ADMIN,
    ("DELETE", f"{TABLE_PATH}/tags/{{name}}"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/views"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/views/{{name}}/drop"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/views/{{name}}/backfill"): Role.ADMIN,
    ("DELETE", f"{TABLE_PATH}/streams/{{stream}}"): Role.ADMIN,
    ("DELETE", f"{TABLE_PATH}/{{kind}}/{{name}}"): Role.ADMIN,
    ("POST", f"{TABLE_PATH}/freeze"): Role.ADMIN,
    ("GET", f"{TABLE_PATH}/frozen"): Role.READ,
}
"""The role by method and path, as the router names it."""

OF_ALL_TABLES = frozenset({("POST", f"{TABLE_PATH}/views")})
"""Routes for tokens without a list of tables: the body of the request names another table."""


INSERT_ROUTE, SNAPSHOT_ROUTE = ("POST", f"{TABLE_PATH}/insert"), ("GET", f"{TABLE_PATH}/snapshot")
"""The routes that the fast path serves, too."""


def permit(grant: Grant, route: tuple[str, str], table: str | None) -> None:
    """Do nothing when a token may use a route.

    Parameters
    ----------
    grant
        The token's.
    route
        A key of `ROLES`.
    table
        The table that the path names; None: it names none.

    Raises
    ------
    NotPermitted
        It may not.
    """
    grant.permit(ROLES[route], None if route in OF_ALL_TABLES else table)


__all__ = ["INSERT_ROUTE", "OF_ALL_TABLES", "ROLES", "SNAPSHOT_ROUTE", "TABLE_PATH", "permit"]
