"""Fetch the JavaScript libraries of the page, and of its tests, from npm: ``python tools/vendor_web.py``.

``npm pack`` downloads each package at the version below; the archive must have the digest below, which is npm's own
``dist.integrity``.  Its files are copied byte for byte, with the licence.  tests/ui/test_vendored.py compares the copies.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "src/replitree/ui/static/vendor"
TESTS = "tests/ui/vendor"


@dataclass(frozen=True)
class Package:
    """One package of npm; `files` says under which name each file is copied, and `digests` have the SHA-256 of the copies."""

    name: str
    version: str
    licence: str
    integrity: str
    folder: str
    files: dict[str, str]
    digests: dict[str, str]


PACKAGES = (
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        PAGE,
        {
            "dist/uPlot.iife.min.js": "uplot.iife.min.js",
            "dist/uPlot.min.css": "uplot.min.css",
            "LICENSE": "uplot.LICENSE",
        },
        {
            "uplot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
            "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        },
    ),
    Package(
        "d3-hierarchy",
        "3.1.3",
        "ISC",
        "sha512-GRajN5ZcnEwYFWqqdzhG1qJ3+fDg6WWzk47TJg7ePY7yvYAgRfD2r1mUx+wviBOWuCwamCUzjwMSdato43jbGA==",
        PAGE,
        {"dist/d3-hierarchy.min.mjs": "d3-hierarchy.min.mjs", "LICENSE": "d3-hierarchy.LICENSE"},
        {"d3-hierarchy.min.mjs": "400b7b1e7077b4905f680093785eca591f799f03c735fcd3290dd55611e8410e"},
    ),
    Package(
        "axe-core",
        "4.14.1",
        "MPL-2.0",
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        TESTS,
        {"axe.min.js": "axe.min.js", "LICENSE": "axe.LICENSE"},
        {"axe.min.js": "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"},
    ),
)


def fetch(package: Package) -> None:
    """Download one package, compare it, and copy its files."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        command = ["npm", "pack", "--silent", "--pack-destination", folder, wanted]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{found}" != package.integrity:
            sys.exit(f"{wanted} is not what it was: its digest is sha512-{found}")
        with tarfile.open(archive) as opened:
            for path, name in package.files.items():
                member = opened.extractfile(f"package/{path}")
                assert member is not None, path
                (ROOT / package.folder / name).write_bytes(member.read())
        print(f"{wanted} ({package.licence}): {', '.join(package.files.values())}")


if __name__ == "__main__":
    for each in PACKAGES:
        fetch(each)
