"""What we publish holds on every machine: no paths of somebody's home, no address of a package registry."""

from __future__ import annotations

import re

import pytest

from tests.project.source import ROOT, SOURCES, modules, text_files

HOME = re.compile(r"(?<![\w.$}~-])/(?:home|root|Users)/[\w.-]+")
REGISTRY = re.compile(r"(?i)https?://[^\s\"'`)>]*(?:/simple\b|pypi|pythonhosted|registry|artifactory|mirror)")
REGISTRY_OPTION = re.compile(r"--(?:extra-)?index[-]url|--find[-]links|--trusted[-]host")
RECURSION = re.compile(r"\.rglob\(|\.glob\([^)\n]*\*\*/")
LICENCE = ROOT / "LICENSE"


@pytest.mark.parametrize("pattern", [HOME, REGISTRY, REGISTRY_OPTION], ids=["home", "registry", "registry option"])
def test_text_names_no_machine_and_no_registry(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in text_files()
        for match in pattern.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (HOME, "see " + "/ho" + "me/ann/project"),
        (REGISTRY, "https:/" + "/py" + "pi.example/x"),
        (REGISTRY, "http:/" + "/host.example/sim" + "ple/"),
        (REGISTRY_OPTION, "pip install --index-" + "url x"),
        (RECURSION, 'folder.rglob("*.py")'),
        (RECURSION, 'folder.glob("**/parts")'),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_text_ends_with_one_newline_and_has_no_tabs() -> None:
    """Of the files that no formatter looks after."""
    texts = {path: path.read_text(encoding="utf-8") for path in text_files() if path.suffix in {".md", ".toml"}}
    wrong = [str(path) for path, text in texts.items() if "\t" in text or not re.search(r"[^\n]\n\Z", text)]
    assert wrong == []


def test_folders_are_walked_by_what_bears_that_others_change_them() -> None:
    """`Path.rglob` fails where a folder vanishes meanwhile, `replitree.storage.files.folder_walk` does not."""
    wrong = [module.place for module in modules(*SOURCES) if RECURSION.search(module.text)]
    assert wrong == []


def test_licence_is_apache_in_full() -> None:
    text = LICENCE.read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
