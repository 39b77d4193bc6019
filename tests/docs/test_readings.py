"""docs/readings.md defines every reading code that code, output or documentation cites."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "readings.md").read_text()
DEFINED = set(re.findall(r"^\| ([ABFGHPQ]\d+) \|", PAGE, re.MULTILINE))
CODE = re.compile(r"(?<![\w.#-])([ABFGHPQ]\d{1,2})(?![\w.-]*\w)")
NOT_READINGS = {"P0", "P50", "P90", "P95", "P99"}
"""P0 is the probability of an empty system; the others are percentiles."""


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if not name.startswith("tests/")]


def cited(text: str) -> set[str]:
    return set(CODE.findall(text)) - NOT_READINGS


def test_each_code_is_defined_once_with_passage_interpretation_and_reason() -> None:
    rows = re.findall(r"^\| ([ABFGHPQ]\d+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == len(DEFINED) >= 90
    assert all(len(cell.strip()) > 1 for row in rows for cell in row[1:])


@pytest.mark.parametrize("letter,last", [("A", 18), ("B", 18), ("F", 14), ("G", 9), ("H", 6), ("P", 11), ("Q", 18)])
def test_the_codes_of_a_paper_have_no_gap(letter: str, last: int) -> None:
    assert {f"{letter}{number}" for number in range(1, last + 1)} == {c for c in DEFINED if c[0] == letter}


def test_every_cited_code_is_defined() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {code}"
        for path in tracked("*.py", "*.md")
        if path.exists()
        for code in cited(path.read_text()) - DEFINED
    }
    assert not missing


def test_nothing_cites_a_document_that_is_not_in_the_repository() -> None:
    spec = re.compile(r"\bspec \d|\((?:the )?design, |\bdesign's? (?:measurement )?rule", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked("*.py", "*.md", "*.toml", "*.yaml", "*.sh", "Makefile")
        if path.exists()
        for match in spec.finditer(path.read_text())
    ]
    assert not found
