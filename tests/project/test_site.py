"""The documentation site: every page is in the navigation once, and what is generated from the code is whole."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from replitree.replica.kit.config import ENVIRONMENT, ServerConfig
from replitree.spark.session.option_names import NAMES
from replitree.storage.schema.definition import TableSettings
from tests.project.source import PACKAGE, ROOT, modules
from tests.project.test_documents import WORDS_MAX
from tools.pages import codes, commands, http, options, results, settings, site

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@cache
def generated() -> dict[str, str]:
    """Return the generated pages."""
    return site.generated()


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [site.place_of(page) for page in site.written()] + site.names()
    assert sorted(site.navigation()) == sorted(pages), "add the page to `nav` in zensical.toml"


def test_links_between_pages_lead_to_pages() -> None:
    folder = ROOT / "docs"
    texts = {site.place_of(page): page.read_text(encoding="utf-8") for page in site.written()} | generated()
    known = set(texts) | {"reference/openapi.json"}
    for place, text in texts.items():
        for link in LINK.findall(site.linked(text, place)):
            target = (folder / place).parent.joinpath(link).resolve()
            assert target.relative_to(folder.resolve()).as_posix() in known or target.exists(), (place, link)


def test_every_generated_page_has_a_name() -> None:
    assert sorted(generated()) == sorted(site.names())


@pytest.mark.parametrize("place", sorted(site.names()))
def test_a_generated_page_is_short(place: str) -> None:
    assert len(generated()[place].replace("|", " ").split()) <= WORDS_MAX


def test_pages_of_commands_have_every_command() -> None:
    assert commands.listed() == commands.built_in()


@pytest.mark.parametrize("kind", [ServerConfig, TableSettings])
def test_every_setting_is_described(kind: type[ServerConfig | TableSettings]) -> None:
    assert {name for name, text in settings.described(kind).items() if text.strip()} == set(kind.__struct_fields__)


def test_every_variable_of_the_environment_is_described() -> None:
    texts = [module.text for module in modules(PACKAGE)]
    found = {name for text in texts for name in re.findall(r"(?<!_)REPLITREE_[A-Z_]+", text)}
    # Of a server's settings each has a variable.
    assert {"REPLITREE_SET_KEY" if name.startswith(ENVIRONMENT) else name for name in found} == set(
        settings.ENVIRONMENT
    )


def test_every_option_of_the_data_source_is_described() -> None:
    page = options.page()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_the_description_of_the_http_api_is_whole() -> None:
    document = http.description()
    schemas = document["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= set(schemas)
    operations = [made for each in document["paths"].values() for made in each.values()]
    assert len({made["operationId"] for made in operations}) == len(operations) > 60
    assert [each["operationId"] for each in operations if not each["summary"]] == []


def test_the_findings_of_the_doctor_are_those_that_the_page_on_health_lists() -> None:
    """Both ways: a code that a rule gives is listed, and a code that is listed has a rule."""
    health = (ROOT / "docs" / "health.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w ]+ \| (`[a-z-]+`.*) \|$", health, re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}
    pages = "\n".join(codes.doctor_page(name) for name in codes.DOCTOR_PAGES)
    found = set(re.findall(r"^\| `([a-z-]+)` \|", pages, re.MULTILINE))
    assert found - {"well"} == listed


def test_every_report_has_a_command_and_losses_are_told() -> None:
    names = {report["name"] for _, _, report in results.reports()}
    assert names <= set(results.COMMANDS)
    worse = [
        key for _, _, each in results.reports() for key, ratio in each["ratio"].items() if results.is_worse(key, ratio)
    ]
    page = generated()["results/where-we-lose.md"].partition("## Figures in which the peer is ahead")[2]
    assert page.count("\n| [") == len(worse) > 0


def rows_with_missed_goals() -> set[tuple[str, str]]:
    """Return page and first cell of each row of a table with a column `goal` whose goal is in bold."""
    found = set()
    for page in site.written():
        goal = None
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            if "goal" in cells:
                goal = cells.index("goal")
            elif not cells:
                goal = None
            elif goal is not None and cells[goal].startswith("**"):
                found.add((page.name, cells[0]))
    return found


def test_every_missed_goal_is_among_those_where_we_lose() -> None:
    """A page says in bold which goal is missed; `docs/results/missed.jsonl` has it, too, until it is reached."""
    missed = results.lines("missed")
    listed = {(each["page"], each["row"]) for each in missed}
    assert rows_with_missed_goals() == {
        (each["page"], each["row"]) for each in missed if each["beside"].startswith("goal")
    }
    assert all(f"| {row} |" in (ROOT / "docs" / page).read_text(encoding="utf-8") for page, row in listed)
