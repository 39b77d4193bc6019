"""Every test that a page of the documentation names is there."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^ *def (test_\w+)\(", re.M)


def listed(pattern: str) -> list[Path]:
    """Files in git that match."""
    names = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


@cache
def defined_tests() -> frozenset[str]:
    return frozenset(name for file in listed("tests/*.py") for name in DEFINED.findall(file.read_text()))


PAGES = [page for page in listed("*.md") if NAMED.search(page.read_text()) and page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_test_that_a_page_names_is_there(page: Path) -> None:
    assert sorted(set(NAMED.findall(page.read_text())) - defined_tests()) == []


def test_pages_that_promise_name_their_tests() -> None:
    assert {"boards.md", "real-parts.md"} <= {page.name for page in PAGES}
