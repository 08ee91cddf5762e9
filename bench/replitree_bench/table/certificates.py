"""Certificates for a measured cluster that speaks TLS: an authority of its own, made anew each time."""

from __future__ import annotations

from pathlib import Path

from replitree.errors import ReplitreeError


def tls_settings(folder: Path) -> dict[str, object]:
    """Write an authority, and a certificate for this machine, into a folder; return the settings of servers that use them.

    Raises
    ------
    ReplitreeError
        trustme, which makes them, is not installed.
    """
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise ReplitreeError("trustme is not installed, which makes the certificates: pip install trustme") from error
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    files = {name: folder / name for name in ("ca.pem", "server.crt", "server.key")}
    for file, data in (
        (files["ca.pem"], authority.cert_pem.bytes()),
        (files["server.crt"], b"".join(each.bytes() for each in made.cert_chain_pems)),
        (files["server.key"], made.private_key_pem.bytes()),
    ):
        file.touch(0o600)
        file.write_bytes(data)
    return {
        "tls_ca": str(files["ca.pem"]),
        "tls_certificate": str(files["server.crt"]),
        "tls_key": str(files["server.key"]),
    }


__all__ = ["tls_settings"]
