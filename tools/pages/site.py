"""The pages of the site in one folder: those of `docs/`, and those that are generated from the code and from results."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.pages import api, codes, commands, http, metrics, options, results, settings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
CONFIG = ROOT / "zensical.toml"

_OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)]*)\)")
"""A link to a file of the checkout that is no page."""

ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files of the checkout's root that are pages, too."""


def names() -> list[str]:
    """Return the paths of the generated pages, without making them."""
    reference = (
        *api.PAGES,
        *commands.PAGES,
        *http.PAGES,
        *codes.DOCTOR_PAGES,
        "errors",
        "metrics",
        "options",
        *settings.PAGES,
    )
    return [f"reference/{name}.md" for name in reference] + [f"results/{name}.md" for name in results.NAMES]


def generated() -> dict[str, str]:
    """Return the generated pages by their paths."""
    found = {f"reference/{name}.md": api.page(name) for name in api.PAGES}
    found |= {f"reference/{name}.md": commands.page(name) for name in commands.PAGES}
    found |= {f"reference/{name}.md": http.page(name) for name in http.PAGES}
    found |= {f"reference/{name}.md": codes.doctor_page(name) for name in codes.DOCTOR_PAGES}
    found |= {
        "reference/errors.md": codes.errors_page(),
        "reference/metrics.md": metrics.page(),
        "reference/options.md": options.page(),
    }
    found |= {f"reference/{name}.md": text for name, text in settings.pages().items()}
    return found | {f"results/{name}.md": text for name, text in results.pages().items()}


def written() -> Iterator[Path]:
    """Give the pages that are in the checkout."""
    yield from sorted(DOCS.glob("**/*.md"))
    yield from (ROOT / name for name in ROOT_PAGES)


def place_of(page: Path) -> str:
    """Return where a page of the checkout is in the site."""
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


def write(folder: Path) -> None:
    """Write all pages into a folder; what was there is removed.

    Parameters
    ----------
    folder
        The folder that `zensical.toml` names.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.md", "*.jsonl"))
    texts = {place_of(page): page.read_text(encoding="utf-8") for page in written()} | generated()
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(linked(text, place), encoding="utf-8")
    (folder / "reference" / "openapi.json").write_text(json.dumps(http.description(), indent=1), encoding="utf-8")


def linked(text: str, place: str) -> str:
    """Return a page with links that lead somewhere in the site: of a link to another file of the checkout the text is left."""
    if place in ROOT_PAGES:
        text = text.replace("](docs/", "](")

    def within(found: re.Match[str]) -> str:
        name = found["target"].removeprefix("../").partition("#")[0]
        if name == "README.md":
            return f"[{found['text']}](index.md)"
        return f"[{found['text']}]({name})" if name in ROOT_PAGES and "/" not in place else found["text"]

    text = _OUTSIDE.sub(within, text) if "/" not in place else text
    return re.sub(
        r"\[([^\]]+)\]\((?:results/[\w-]+\.jsonl|README\.md|(?:verify|tests|bench|src|tools)/[^)]*)\)", r"\1", text
    )


def navigation(config: Path = CONFIG) -> list[str]:
    """Return the pages that the navigation has, in its order."""

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(inner)

    return list(pages(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]))
