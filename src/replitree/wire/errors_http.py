"""How an error travels over HTTP: a status, and JSON with the error's class, its message and, where there is one, the token.

An error of the change feed also says which one it is, and its index; a client that does not know these has the class above it.
"""

from __future__ import annotations

from replitree import errors
from replitree.wire.feed_errors import FEED_ERRORS, FeedError
from replitree.wire.sent_batch import BATCH_DIGITS_MAX

STATUS: dict[type[errors.ReplitreeError], int] = {
    errors.BadInput: 400,
    errors.InvalidName: 400,
    errors.SchemaMismatch: 400,
    errors.NotAuthorized: 401,
    errors.NotPermitted: 403,
    errors.TableNotFound: 404,
    errors.TableExists: 409,
    errors.ConcurrentChange: 409,
    errors.StreamReplaced: 409,
    errors.SnapshotExpired: 410,
    errors.LeaseLost: 410,
    errors.CorruptPart: 410,
    errors.TooManyParts: 429,
    errors.Unavailable: 503,
    errors.CoordinationUnavailable: 503,
    errors.ReplicaUnavailable: 503,
    errors.RowsUnavailable: 503,
    errors.ReplicaBehind: 503,
    errors.ReadOnly: 503,
    errors.TooFewReplicas: 503,
    errors.QuorumNotReached: 503,
    errors.OutcomeUnknown: 504,
    errors.StoreError: 507,
}


def status_of(error: errors.ReplitreeError) -> int:
    """Return the HTTP status for an error; 500 for one that has no place in the table.

    >>> status_of(errors.TooManyParts("too many"))
    429
    """
    return 409 if isinstance(error, FeedError) else STATUS.get(_public(error), 500)


def _public(error: errors.ReplitreeError) -> type[errors.ReplitreeError]:
    """Return the error's class as users know it: the first that `replitree.errors` defines."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)


def body_of(error: errors.ReplitreeError) -> dict[str, str]:
    """Return the JSON body for an error."""
    body = {"error": _public(error).__name__, "message": str(error)}
    if isinstance(error, errors.OutcomeUnknown):
        body["token"] = error.token
    if isinstance(error, FeedError):
        body |= {"feed": type(error).__name__, "index": str(error.index)}
    if isinstance(error, errors.StreamReplaced):
        body |= {"stream": error.stream, "query": error.query, "batch": str(error.batch)}
    return body


def error_from(body: dict[str, str]) -> errors.ReplitreeError:
    """Return the error that `body_of` described; `ReplitreeError` itself for a class that this version does not know.

    >>> error_from({"error": "ReadOnly", "message": "no room"})
    ReadOnly('no room')
    """
    message = body.get("message", "the replica answered with an error")
    feed = FEED_ERRORS.get(body.get("feed", ""))
    if feed is not None:
        return feed(message, int(body.get("index", "-1")))
    kind = getattr(errors, body.get("error", ""), errors.ReplitreeError)
    if kind is errors.OutcomeUnknown:
        return errors.OutcomeUnknown(message, body.get("token", ""))
    if kind is errors.StreamReplaced:
        theirs = body.get("batch", "")
        batch = int(theirs) if theirs.isdecimal() and len(theirs) <= BATCH_DIGITS_MAX else -1
        return errors.StreamReplaced(message, body.get("stream", ""), body.get("query", ""), batch)
    if isinstance(kind, type) and issubclass(kind, errors.ReplitreeError):
        return kind(message)
    return errors.ReplitreeError(message)
