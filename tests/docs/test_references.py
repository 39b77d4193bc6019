"""Every path, link and dotted module name in a Markdown file leads to something in the tree."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_build import KERNEL
from penstock.checkout_names import FOLDERS as FOLDERS_OF_THE_WHEEL

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
FOLDERS = sorted({*PACKAGES, "docs", "tests"} - {"runs"})

PATH = re.compile(rf"(?<![\w/.<…])((?:\.\./)*(?:{'|'.join(FOLDERS)})/[\w./*{{}},<>…-]*[\w/*])")
DOTTED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"\.(?:html|json|md|parquet|py|yaml)$")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)

EXAMPLES = {"controller.scalers.half_full"}
"""Made-up names of the tutorials."""
GROUPS = {"penstock.commands", "penstock.fleets", "penstock.scalers"}
"""Groups of entry points."""
FORMER = {
    "controller.actuators", "controller.monitors", "controller.scalers.single_fleet", "penstock.amqp",
    "penstock.functions",
}  # fmt: skip
"""Names before a change, in the changelog and in decisions."""
NOT_OURS = {"penstock/app", "penstock/driver", "penstock/image"}
"""Names of container images."""


def pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists() and not name.startswith("tests/")]


def is_path(text: str, page: Path) -> bool:
    """Whether a path leads somewhere, from the repository's root or from the page; one with a placeholder counts."""
    text = text.rstrip("./")
    if text in NOT_OURS or re.search(r"[<>{}…*]", text):
        return True
    return (ROOT / text).exists() or (page.parent / text).exists()


def defined(module: Path) -> set[str]:
    """Names that a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names


def is_dotted(text: str) -> bool:
    """Whether a dotted name is a module, or a module's attribute."""
    place = ROOT
    parts = text.split(".")
    if parts[0] == KERNEL and parts[1] in FOLDERS_OF_THE_WHEEL:
        parts = parts[1:]
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            rest = parts[number + 1 :]
            return not rest or rest[0] in defined(place / f"{part}.py")
        else:
            return number > 0 and (place / "__init__.py").is_file() and part in defined(place / "__init__.py")
    return True


def wrong(name: str) -> Iterator[str]:
    page = ROOT / name
    text = page.read_text()
    for link in LINK.findall(text):
        if not link.startswith(("http:", "https:", "mailto:")) and not (page.parent / link).exists():
            yield f"link {link}"
    for code in CODE.findall(text):
        for path in PATH.findall(code):
            if not is_path(path, page):
                yield path
        for dotted in DOTTED.findall(code):
            if not (dotted in EXAMPLES | GROUPS | FORMER or FILE.search(dotted) or is_dotted(dotted)):
                yield dotted


@pytest.mark.parametrize("name", pages())
def test_references_of_a_page_lead_somewhere(name: str) -> None:
    assert list(wrong(name)) == []
