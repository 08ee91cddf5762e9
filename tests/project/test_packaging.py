"""pyproject.toml and constraints.txt agree: everything that is installed is pinned, and every pin is allowed."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.project.source import PACKAGE, ROOT, SOURCE

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)")


@cache
def pins() -> dict[str, Version]:
    """Name and version of everything in constraints.txt; each of its lines is a pin or a comment."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), "every line is NAME==VERSION"
    return {canonicalize_name(pin["name"]): Version(pin["version"]) for pin in found if pin}


@cache
def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def direct_requirements() -> list[Requirement]:
    """Everything that pyproject.toml asks for, the extras and the build too."""
    lines = [*project()["project"]["dependencies"], *project()["build-system"]["requires"]]
    lines += [line for extra in project()["project"]["optional-dependencies"].values() for line in extra]
    return [Requirement(line) for line in lines]


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    wrong = [
        str(requirement)
        for requirement in direct_requirements()
        if not requirement.specifier.contains(pins().get(canonicalize_name(requirement.name), Version("0")))
    ]
    assert wrong == []


def test_every_requirement_of_a_requirement_is_pinned() -> None:
    waiting: list[str] = [canonicalize_name(requirement.name) for requirement in direct_requirements()]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _needs(name)
    assert sorted(seen - set(pins())) == []


def _needs(name: str) -> list[str]:
    """Names of what an installed package needs here; nothing for one that is not installed, such as an extra's."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return []
    needed = [Requirement(line) for line in lines]
    return [
        canonicalize_name(each.name) for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})
    ]


def test_wheel_has_every_package_and_its_types() -> None:
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(f"src/{path.parent.name}" for path in SOURCE.glob("*/__init__.py"))
    assert (PACKAGE / "py.typed").exists()


def test_console_script_starts_the_command_line() -> None:
    assert project()["project"]["scripts"] == {"replitree": "replitree.cli.main:main"}
