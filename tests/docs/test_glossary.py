"""docs/glossary.md has every word that the command line prints as a heading."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TERMS = {term.lower() for term in re.findall(r"\*\*([^*|]+)\*\*", (ROOT / "docs" / "glossary.md").read_text())}
SYMBOLS = {"λ", "μ", "ρ", "ms", ""}
"""Symbols and units, which the glossary has beside their terms."""
HEADED = ("Table", "Column", "add_column")


def headings(path: Path) -> Iterator[str]:
    """Texts of a file that rich tables get as headings."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)) if any(name in source for name in HEADED) else ():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in HEADED:
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def test_every_heading_of_the_command_line_is_in_the_glossary() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if not name.startswith(("tests/", "docs/", "experiments/"))]
    found = {(path.relative_to(ROOT).as_posix(), text) for path in files if path.exists() for text in headings(path)}
    assert len(found) > 15
    unknown = {
        f"{path}: {text}"
        for path, text in found
        if not {text.lower(), text.lower().split(" ")[0]} & (TERMS | SYMBOLS) and "explanations" not in path
    }
    assert not unknown
