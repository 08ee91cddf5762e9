"""pyproject.toml and constraints.txt agree: everything that is installed is pinned, and every pin is allowed."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.project.source import BENCH, PROJECTS, PUBLISHED, ROOT, SOURCES
from tools.lowest import EXTRAS, TESTS, lowest_versions, requirements_of_product

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)")


@cache
def pins() -> dict[str, Version]:
    """Name and version of everything in constraints.txt; each of its lines is a pin or a comment."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), "every line is NAME==VERSION"
    return {canonicalize_name(pin["name"]): Version(pin["version"]) for pin in found if pin}


@cache
def project(folder: Path = ROOT) -> dict[str, Any]:
    """Return the pyproject.toml of a folder."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def all_requirements() -> list[Requirement]:
    """Everything that a pyproject.toml asks for, the extras and the builds too."""
    lines: list[str] = []
    for each in map(project, PROJECTS):
        lines += [*each["project"]["dependencies"], *each["build-system"]["requires"]]
        lines += [line for extra in each["project"].get("optional-dependencies", {}).values() for line in extra]
    return [Requirement(line) for line in lines]


def own() -> dict[str, str]:
    """Name and version of our own distributions."""
    return {each["project"]["name"]: each["project"]["version"] for each in map(project, PROJECTS)}


def direct_requirements() -> list[Requirement]:
    """Everything of others that we ask for."""
    return [requirement for requirement in all_requirements() if requirement.name not in own()]


def test_our_distributions_have_one_version_and_ask_for_it() -> None:
    (version,) = set(own().values())
    asked = {str(requirement.specifier) for requirement in all_requirements() if requirement.name in own()}
    assert asked == {f"=={version}"}


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


@pytest.mark.parametrize(("folder", "source"), list(zip(PROJECTS, SOURCES, strict=True)), ids=lambda path: path.name)
def test_wheel_has_every_package_and_its_types(folder: Path, source: Path) -> None:
    packages = project(folder)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    found = [path.parent for path in source.glob("*/__init__.py")]
    assert sorted(packages) == sorted(path.relative_to(folder).as_posix() for path in found)
    assert [path.name for path in found if not (path / "py.typed").exists()] in ([], ["pyspark_replitree"])


@pytest.mark.parametrize("folder", [PUBLISHED, BENCH], ids=lambda path: path.name)
def test_what_only_a_checkout_has_can_not_be_uploaded(folder: Path) -> None:
    assert "Private :: Do Not Upload" in project(folder)["project"]["classifiers"]


def test_console_script_starts_the_command_line() -> None:
    assert project()["project"]["scripts"] == {"replitree": "replitree.cli.main:main"}


def test_every_requirement_of_the_product_has_a_lowest_version_that_is_tested() -> None:
    assert len(lowest_versions(requirements_of_product())) >= len(project()["project"]["dependencies"]) + len(EXTRAS)
    assert [name for name in TESTS if not (ROOT / name).exists()] == []


def test_the_extras_that_the_documents_name_are_there() -> None:
    named = set(
        re.findall(r"replitree\[([a-z]+)\]", "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md")))
    )
    assert named | {"duckdb", "java", "otel", "polars", "spark", "verify"} <= set(
        project()["project"]["optional-dependencies"]
    )
