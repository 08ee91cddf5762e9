"""Libraries of others are as npm has them, with their licences, and nothing else comes from elsewhere."""

from __future__ import annotations

import hashlib
import re

from tests.project.source import ROOT
from tests.ui.engine import STATIC
from tools.vendor_web import PACKAGES, PAGE


def test_copies_are_what_npm_had() -> None:
    for package in PACKAGES:
        for name, digest in package.digests.items():
            assert hashlib.sha256((ROOT / package.folder / name).read_bytes()).hexdigest() == digest, name
        (licence,) = (name for name in package.files.values() if name.endswith(".LICENSE"))
        assert (ROOT / package.folder / licence).stat().st_size > 500


def test_nothing_else_is_vendored() -> None:
    known = {name for package in PACKAGES if package.folder == PAGE for name in package.files.values()}
    assert {each.name for each in (STATIC / "vendor").iterdir()} == known


def test_own_files_name_no_other_server_and_have_no_inline_code() -> None:
    for file in STATIC.iterdir():
        if file.is_file():
            text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|\beval\(|new Function", text), file.name
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", html)


def test_the_page_is_small() -> None:
    assert sum(each.stat().st_size for each in STATIC.rglob("*") if each.is_file()) < 200_000
