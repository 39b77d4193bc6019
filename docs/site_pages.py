"""MkDocs hook (``make docs``): adds to docs/ the repository's other pages, a reference generated from the code, and the
navigation. Nothing that it makes is committed.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

from controller.command import describe
from experiments.catalogue import EXPERIMENTS
from penstock import metrics
from penstock.command import GROUPS, build
from penstock.registry import scaler_classes

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
MODULES = ("penstock.contracts", "penstock.systems", "penstock.runspec", "penstock.measures", "penstock.fleet_kinds")
"""Contracts between packages, and what a run is made of."""

NAVIGATION = {
    "Start here": [
        "index.md", "install.md", "which-scaler.md", "examples/keda/README.md", "examples/own-consumers/README.md",
    ],
    "How to": [
        "your-own-*.md", "guards.md", "experiments/advise/README.md", "experiments/replay/README.md", "in-ci.md",
        "live.md", "kafka-security.md", "boards.md",
        "commands.md", "openfaas.md", "dataflow.md", "infra/kubernetes/README.md", "infra/images/standins/README.md",
    ],
    "Reference": ["reference/*.md", "glossary.md"],
    "Explanations": [
        "architecture.md", "measurement.md", "newsvendor.md", "fidelity.md", "reliability.md", "real-parts.md",
        "readings.md",
    ],
    "Decisions": ["decisions/*.md"],
    "Papers": ["experiments/*/README.md"],
    "FAQ": ["faq.md"],
    "Project": ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"],
}  # fmt: skip
"""Pages by section; a page is in the first section that names it."""


@cache
def pages() -> dict[str, str]:
    """Committed pages: path in the repository → path in the site."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = (name for name in listed.splitlines() if not name.startswith(("tests/", ".github/")))
    return {
        name: "index.md" if name == "README.md" else name.removeprefix("docs/")
        for name in found
        if (ROOT / name).is_file()
    }


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and the files that pages link to."""
    texts = {site: (ROOT / name).read_text() for name, site in pages().items()}
    for site, text in {**texts, **dict(reference())}.items():
        if site not in files.src_uris:
            files.append(File.generated(config, site, content=text))
    for name, site in pages().items():
        for link in LINK.finditer(CODE.sub("", texts[site])):
            target = resolved(name, link["to"])
            uri = source_uri(target)
            if target not in pages() and (ROOT / target).is_file() and uri not in files.src_uris:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
    config.nav = list(navigation(sorted(file.src_uri for file in files.documentation_pages())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the site has their targets; a link to a folder of code becomes its text."""
    del config, files
    here = page.file.src_uri
    name = next((name for name, site in pages().items() if site == here), None)
    if name is None:
        return markdown

    def moved(link: re.Match[str]) -> str:
        if re.match(r"\w+:", link["to"]):
            return link[0]
        target = resolved(name, link["to"])
        if (ROOT / target).is_dir():
            if target == "docs/decisions":
                target = "docs/decisions/0001-event-ids-and-results.md"
            elif f"{target}/README.md" in pages():
                target += "/README.md"
            else:
                return link["text"]
        to = relpath(pages().get(target) or source_uri(target), PurePosixPath(here).parent)
        return f"{link['image']}[{link['text']}]({to}{link['anchor'] or ''})"

    blocks = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in blocks)


def resolved(page: str, link: str) -> str:
    """A link of a page as a path in the repository."""
    return normpath(PurePosixPath(page).parent / link)


def source_uri(path: str) -> str:
    """Where the site has a file that is no page."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}"


def navigation(found: list[str]) -> Iterator[dict[str, Any]]:
    """Sections with their pages; a pattern adds what no section has yet."""
    left = dict.fromkeys(found)
    for patterns in NAVIGATION.values():
        for exact in patterns:
            if "*" not in exact:
                left.pop(exact, None)
    for section, patterns in NAVIGATION.items():
        entries: list[str] = []
        for pattern in patterns:
            if "*" not in pattern:
                entries.append(pattern)
                continue
            for uri in [uri for uri in left if PurePosixPath(uri).match(pattern)]:
                entries.append(uri)
                del left[uri]
        yield {section: entries[0] if len(entries) == 1 else entries}
    if left:
        yield {"More": list(left)}


def reference() -> Iterator[tuple[str, str]]:
    """(path in the site, text) of the pages that are generated from code."""
    yield "reference/commands.md", "\n".join(commands())
    yield "reference/scalers.md", "\n".join(scalers())
    yield "reference/experiments.md", "\n".join(experiments())
    yield "reference/metrics.md", "\n".join(exported())
    yield (
        "reference/contracts.md",
        "# Contracts\n\n"
        + "\n\n".join(f"## {name}\n\n::: {name}\n    options: {{show_root_heading: false}}" for name in MODULES),
    )


def row(*cells: object) -> str:
    """A line of a table."""
    texts = (" ".join(str(cell).split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return "| " + " | ".join(texts) + " |"


def commands() -> Iterator[str]:
    """``penstock`` with all its commands and options."""
    root: Any = get_command(build())
    context = typer.Context(root, info_name="penstock")
    yield "# Commands\n"
    for group, names in GROUPS.items():
        yield f"## {group}\n"
        for name in names:
            yield from command(root.commands[name], f"penstock {name}", context)


def command(each: Any, path: str, parent: Any) -> Iterator[str]:
    """A command, or a group with its commands."""
    context = typer.Context(each, info_name=path.rpartition(" ")[2], parent=parent)
    yield f"### {path}\n"
    yield (each.help or "").replace("<", "&lt;") + "\n"
    if getattr(each, "commands", None):
        for name, below in each.commands.items():
            yield from command(below, f"{path} {name}", context)
        return
    if each.epilog:
        yield f"```\n{each.epilog.removeprefix('Example: ')}\n```\n"
    rows = [
        row(
            f"`{', '.join([*option.opts, *option.secondary_opts])}`"
            if option.param_type_name == "option"
            else f"`{option.name}`",
            "required" if option.required else shown_default(option),
            option.help or "",
        )
        for option in each.params
    ]
    if rows:
        yield "\n".join(["| option | default | |", "|---|---|---|", *rows, ""])


def shown_default(option: Any) -> str:
    """The default as the help has it."""
    if isinstance(getattr(option, "show_default", None), str):
        return f"({option.show_default})"
    return (
        "" if option.default is None or option.default is False or callable(option.default) else f"`{option.default}`"
    )


def scalers() -> Iterator[str]:
    """All scalers with their parameters."""
    yield "# Scalers\n\nThe fleet `any` is every kind. Set a parameter with `--set scaler.parameter=value`.\n"
    for name, kind in sorted(scaler_classes().items()):
        told = describe(name, kind)
        yield f"## {name}\n"
        emulated = f" Our emulation of {told['emulates']}." if told["emulates"] else ""
        yield f"Fleet `{told['fleet']}`. {told['paper']}.{emulated}\n".replace("<", "&lt;")
        if told["parameters"]:
            rows = [row(f"`{each['name']}`", f"`{each['default']}`", each["unit"]) for each in told["parameters"]]
            yield "\n".join(["| parameter | default | unit |", "|---|---|---|", *rows, ""])


def experiments() -> Iterator[str]:
    """All experiments."""
    yield "# Experiments\n\n| experiment | title | length | SLO | paper |\n|---|---|---|---|---|"
    for each in EXPERIMENTS.values():
        yield row(f"`{each.name}`", each.title, f"{each.seconds:g} s", f"{each.slo_s:g} s", each.paper)


def exported() -> Iterator[str]:
    """Names of all metrics, by who exports them."""
    text = Path(metrics.__file__).read_text()
    yield f"# Metrics\n\n{metrics.__doc__}"
    for line in text.splitlines():
        if line.startswith("# "):
            yield f"\n## {line[2:]}\n"
        elif found := re.search(r'"(penstock_\w+)"', line):
            yield f"- `{found[1]}`"
