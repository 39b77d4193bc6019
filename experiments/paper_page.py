"""One HTML page of a paper: its coverage table, its figures and its tables. The page loads nothing."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from experiments.coverage import coverage, readme
from experiments.paper import Paper, PaperFigure, Rendering

PAGE = "index.html"


def write_pictures(paper: Paper, made: Sequence[Rendering], folder: Path) -> list[tuple[PaperFigure, str]]:
    """Every figure whose table is there, as ``<name>.svg``; the figures with their documents."""
    rows = {rendering.table.name: rendering.cells for rendering in made}
    pictures = [(figure, figure.svg(rows[figure.table])) for figure in paper.figures if rows.get(figure.table)]
    for figure, svg in pictures:
        (folder / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
    return pictures


def write_page(paper: Paper, made: Sequence[Rendering], folder: Path, conditions: str) -> Path:
    """Pictures and page of these tables; the page. The coverage table is on it if the paper's README has one."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["parts"] = parts
    template = environment.from_string((Path(__file__).parent / "assets" / "paper.html").read_text(encoding="utf-8"))
    known = readme(paper.name)
    rows = coverage(paper.name) if known.exists() and "## Coverage\n" in known.read_text(encoding="utf-8") else []
    verdicts = Counter(row["verdict"].partition(":")[0] for row in rows)
    page = template.render(
        title=paper.title,
        conditions=conditions,
        coverage=rows,
        verdicts=", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common()),
        pictures=write_pictures(paper, made, folder),
        renderings=made,
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    return folder / PAGE


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """A cell of Markdown as texts, each with whether it is code; of a link the text is left."""
    linked = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    for number, part in enumerate(linked.split("`")):
        yield number % 2 == 1, part
