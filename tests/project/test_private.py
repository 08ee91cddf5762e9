"""What is written below a cluster's folders gets its mode by `replitree.private`."""

from __future__ import annotations

import re

import pytest

from tests.project.source import PACKAGE, modules

ELSEWHERE = ("demo/", "java.py", "private.py", "cli/", "wire/history_recorder.py")
"""Write reports, caches and test data, and none of a cluster's files."""

BY_UMASK = re.compile(
    r"\.mkdir\(|\.write_bytes\(|\.write_text\(|\.touch\((?!path)|(?<!fd)open\([^()\n]*\"[wxa]b?\"|copyfile|copytree|shutil\.copy"
    r"|os\.open\([^\n]*O_CREAT(?![^\n]*0o600)"
)
ALLOWED = re.compile(r"private\.\w+\(|path\.mkdir\((GROUP_FOLDER|PRIVATE_FOLDER)")


def test_no_file_has_the_mode_of_the_umask() -> None:
    found = [
        f"{module.path.relative_to(PACKAGE)}: {line.strip()}"
        for module in modules(PACKAGE)
        if not module.path.relative_to(PACKAGE).as_posix().startswith(ELSEWHERE)
        for line in module.text.splitlines()
        if BY_UMASK.search(line) and not ALLOWED.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["folder.mkdir()", "path.write_bytes(data)", 'with path.open("ab") as log:', "os.open(path, os.O_CREAT, 0o644)"],
)
def test_the_rule_sees_what_it_forbids(line: str) -> None:
    assert BY_UMASK.search(line)
