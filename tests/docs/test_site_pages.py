"""The docs site: it builds without a warning, every page can be reached, and the front page answers who asks."""

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = {
    "behind KEDA": "examples/keda/index.html",
    "my own consumers": "examples/own-consumers/index.html",
    "my own scaler": "your-own-scaler.html",
    "which one?": "which-scaler.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="`make docs` installs the site's packages")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def links(site: Path, page: str, *, content_only: bool = False) -> set[str]:
    """Pages that a page links to."""
    text = (site / page).read_text()
    if content_only:
        text = text[text.index("<article") : text.index("</article>")]
    found = re.findall(r'href="([^"#:]+\.html)[#"]', text)
    return {normpath(PurePosixPath(page).parent / link) for link in found} - {page}


def test_readme_is_short_and_names_the_four_questions_first() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 120
    first = readme.partition("\n## ")[0]
    assert all(f"[{question}](" in first for question in QUESTIONS)


@pytest.mark.long
def test_every_page_can_be_reached_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert len(pages) > 40
    reached, new = {"index.html"}, {"index.html"}
    while new:
        linked = {link for page in new for link in links(site, page)}
        assert linked <= pages | {"404.html"}, linked - pages
        new = linked - reached
        reached |= new
    assert {page for page in pages if not page.startswith("source/")} <= reached


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_at_most_two_clicks_from_the_text_of_the_front_page(site: Path, question: str) -> None:
    one = links(site, "index.html", content_only=True)
    two = {link for page in one for link in links(site, page, content_only=True)}
    assert QUESTIONS[question] in one | two


@pytest.mark.long
def test_the_reference_has_every_command_scaler_and_metric(site: Path) -> None:
    from penstock import metrics
    from penstock.command import GROUPS
    from penstock.registry import scaler_classes

    def text(page: str) -> str:
        return (site / "reference" / page).read_text()

    assert [
        name for names in GROUPS.values() for name in names if f"penstock {name}" not in text("commands.html")
    ] == []
    assert [name for name in scaler_classes() if f'id="{name}"' not in text("scalers.html")] == []
    names = {value for value in vars(metrics).values() if isinstance(value, str) and value.startswith("penstock_")}
    assert len(names) > 40
    assert [name for name in names if name not in text("metrics.html")] == []
    assert "FleetObservation" in text("contracts.html")
