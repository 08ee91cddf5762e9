"""Inserts and a bulk load by TLS, in turn with the same in clear text.

Two clusters of two replicas and one ZooKeeper each run side by side; one speaks TLS everywhere (clients, replicas, ZooKeeper), with
certificates that are issued for the run.  One of them is idle while the other is measured.

Keys::

    inserts_per_s_<n>_clients   acknowledged inserts of 100 rows per second
    bulk_rows_per_s             one insert of `ROWS` rows from Arrow, until it is acknowledged
    copied_rows_per_s           the same, until the second replica has it, too
    paired_<key>                the ratio of both runs of a round: the median over the rounds, which a machine that is busier in
                                some rounds than in others distorts little
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from replitree.errors import ReplitreeError
from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import System

INSERTS = {1: 100, 16: 400, 64: 800}
"""Inserts of a round, by the number of clients that send them."""

ROWS = 2_000_000


def measure(system: System, number: int, *, rows: int = ROWS) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        One of the two clusters.
    number
        Of the round: each has tables of its own.
    rows
        Of the bulk load.
    """
    measured: Measured = {}
    system.create(f"small_{number}")
    first = 0
    for clients, inserts in INSERTS.items():
        system.prepare(first, inserts)
        load = run_clients(clients, inserts, lambda block, first=first: system.insert(first + block))  # type: ignore[misc]
        measured[f"inserts_per_s_{clients}_clients"] = load.per_second
        # What the replicas still merge would be measured with the next number of clients.
        system.wait_equal()
        first += inserts
    system.create(f"bulk_{number}")
    seconds = system.bulk(rows)
    copied_s = seconds + system.wait_equal()
    return measured | {"bulk_rows_per_s": rows / seconds, "copied_rows_per_s": rows / copied_s}


def paired(secure: Sequence[Measured], plain: Sequence[Measured]) -> Measured:
    """Return the median over the rounds of the ratio of each figure.

    >>> paired([{"x": 1.0}, {"x": 9.0}], [{"x": 2.0}, {"x": 10.0}])
    {'paired_x': 0.7}
    """
    ratios = {key: [ours[key] / theirs[key] for ours, theirs in zip(secure, plain, strict=True)] for key in plain[0]}
    return {f"paired_{key}": round(statistics.median(each), 3) for key, each in ratios.items()}


def tls_settings(folder: Path) -> dict[str, object]:
    """Write an authority, and a certificate for this machine, into a folder; return the settings of servers that use them.

    Raises
    ------
    ReplitreeError
        trustme, which makes them, is not installed.
    """
    try:
        import trustme
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key
    except ModuleNotFoundError as error:
        raise ReplitreeError("trustme is not installed, which makes the certificates: pip install trustme") from error
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    # Java reads keys as PKCS#8 only.
    key = load_key(made.private_key_pem.bytes(), None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(each.bytes() for each in made.cert_chain_pems)
    written = {"tls_ca": authority.cert_pem.bytes(), "tls_certificate": chain, "tls_key": key}
    for name, data in written.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(data)
    return {name: str(folder / name) for name in written}


__all__ = ["measure", "paired", "tls_settings"]
