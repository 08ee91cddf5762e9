"""The scenarios: who writes, takes over and lets go, while what goes wrong."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.membership.table import NOT_LOST
from replitree_verify.sharing.models_fsck import FSCK_MODELS
from replitree_verify.sharing.models_own import OWN_MODELS
from replitree_verify.sharing.models_upload import UPLOAD_MODELS
from replitree_verify.sharing.process import drop, leave, take, write
from replitree_verify.sharing.world import Model, Task, replica_of
from replitree_verify.world.faults import Fault


def _write(name: str, part: str, borrows_of: str = "") -> Task:
    return write, (name, part, borrows_of)


def _take(name: str, part: str, source: str) -> Task:
    return take, (name, part, source)


def _leave(name: str, part: str) -> Task:
    return leave, (name, part)


THREE = ("r1", "r2", "r3")


def _member(name: str) -> dict[str, bytes]:
    """Return the nodes that a drop of a replica deletes, beside those that every model has."""
    replica = replica_of(name)
    return {layout.is_lost(replica): NOT_LOST, layout.log_pointer(replica): b"0", layout.queue(replica): b""}


MODELS = (
    Model(
        "share_two",
        "a part is taken over while its writer lets go; then the other one does",
        {"r1": (_write("r1", "a"), _leave("r1", "a")), "r2": (_take("r2", "a", "r1"), _leave("r2", "a"))},
        {Fault.STALE: 1},
        begins_inactive=True,
    ),
    Model(
        "share_crash",
        "the same with a crash of any process, the cleaner too, at any step and in the middle of a request",
        {"r1": (_write("r1", "a"), _leave("r1", "a")), "r2": (_take("r2", "a", "r1"), _leave("r2", "a"))},
        {Fault.CRASH: 1},
        begins_inactive=True,
    ),
    Model(
        "share_doubt",
        "the same while the answer to a commit is lost, which takes place, or comes late, or never",
        {"r1": (_write("r1", "a"), _leave("r1", "a")), "r2": (_take("r2", "a", "r1"), _leave("r2", "a"))},
        {Fault.UNKNOWN: 1, Fault.STALE: 1},
        begins_inactive=True,
    ),
    Model(
        "share_store",
        "the same while answers of the object store are lost, and requests to it come late",
        {"r1": (_write("r1", "a"), _leave("r1", "a")), "r2": (_take("r2", "a", "r1"), _leave("r2", "a"))},
        {Fault.STORE: 1, Fault.CRASH: 1},
    ),
    Model(
        "share_three",
        "three owners let go at once",
        {
            "r1": (_write("r1", "a"), _leave("r1", "a")),
            "r2": (_take("r2", "a", "r1"), _leave("r2", "a")),
            "r3": (_take("r3", "a", "r1"), _leave("r3", "a")),
        },
        {Fault.STALE: 1},
        THREE,
    ),
    Model(
        "share_borrow",
        "a mutated part borrows objects; source and result are taken over and let go in every order",
        {
            "r1": (_write("r1", "a"), _write("r1", "b", "a"), _leave("r1", "a"), _leave("r1", "b")),
            "r2": (_take("r2", "a", "r1"), _take("r2", "b", "r1"), _leave("r2", "a"), _leave("r2", "b")),
        },
        {},
    ),
    Model(
        "share_borrow_crash",
        "the same with a crash",
        {
            "r1": (_write("r1", "a"), _write("r1", "b", "a"), _leave("r1", "a")),
            "r2": (_take("r2", "b", "r1"), _leave("r2", "b")),
        },
        {Fault.CRASH: 1},
    ),
    Model(
        "share_borrow_refused",
        "a mutation while its source is let go: it is refused or not, and another replica that has the source keeps it",
        {
            "r1": (_write("r1", "a"), _write("r1", "b", "a")),
            "r2": (_take("r2", "a", "r1"),),
            "rival": (_leave("r1", "a"),),
        },
        {},
        rivals={"rival": "r1"},
    ),
    Model(
        "share_twice",
        "two replicas write the same part, each for itself; each takes nothing from the other, and both let go",
        {"r1": (_write("r1", "a"), _leave("r1", "a")), "r2": (_write("r2", "a"), _leave("r2", "a"))},
        {Fault.UNKNOWN: 1},
        begins_inactive=True,
    ),
    Model(
        "share_drop",
        "a replica is dropped for good while another one takes over and lets go, and while its own processes go on",
        {
            "r1": (_write("r1", "a"), _leave("r1", "a")),
            "r2": (_take("r2", "a", "r1"), _leave("r2", "a")),
            "operator": ((drop, ("r1",)),),
        },
        {},
        begins_inactive=True,
        nodes=_member("r1"),
    ),
    Model(
        "share_drop_crash",
        "a replica that takes over is dropped, and the drop is cut off and done again",
        {
            "r1": (_write("r1", "a"),),
            "r2": (_take("r2", "a", "r1"),),
            "operator": ((drop, ("r2",)),),
        },
        {Fault.CRASH: 1},
        nodes=_member("r2"),
    ),
    *FSCK_MODELS,
    *UPLOAD_MODELS,
    *OWN_MODELS,
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
