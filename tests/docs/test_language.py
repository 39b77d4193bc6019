"""One language: product code and documentation use the field's terms and none of the nicknames that they replaced."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WORDS = {
    "roster": "replica set",
    "brood": "fork protocol",
    "nursery": "fork server",
    "hatchling": "replica",
    "hatch": "fork",
    "in hand": "unacked, in flight",
    "timetable": "scheduled scaler",
    "tally": "counters",
    "leftover": "orphan",
    "leftovers": "orphans",
    "examination": "validation",
    "introduction": "pod identity",
    "parcels": "claim check",
    "agenda": "event queue",
    "outbox": "commit tracker, result publisher",
    "foreign": "external",
    "supervision": "process manager",
    "named pods": "replica pods",
    "room": "package",
    "rooms": "packages",
}
"""Nicknames, each with its term. A word counts in identifiers, file names and prose alike."""

MODULES = {
    "caps",
    "laws",
    "watched",
    "listening",
    "evidence",
    "parents",
    "streams",
    "plans",
    "floor",
    "share",
    "station",
}
"""Ordinary words that were nicknames as names of modules."""

EXCEPTIONS = {
    ("pyproject.toml", "hatchling"): "the build backend",
    ("pyproject.toml", "hatch"): "the build backend",
    ("hatch_build.py", "hatchling"): "the build backend",
    ("hatch_build.py", "hatch"): "the build backend",
    ("docs/decisions/0021-names-of-the-installed-packages.md", "hatch"): "the build backend",
    ("functions/handlers/bank_classify/handler.py", "foreign"): "a payment in a foreign currency",
    ("consumers/payment.py", "foreign"): "a payment in a foreign currency",
    ("penstock/measures.py", "foreign"): "field of summary.json: results of no scheduled event",
    ("report/analysis/outcomes.py", "foreign"): "field of summary.json",
    ("report/tables.py", "foreign"): "field of summary.json",
    ("experiments/scheduled_scaler.py", "timetable"): "prefix of its parameters on the command line",
    ("experiments/elastic_faas/README.md", "timetable"): "prefix of the scheduled scaler's parameters",
    ("experiments/multiqueue/README.md", "timetable"): "prefix of the scheduled scaler's parameters",
    ("controller/scalers/mwf_rscore.py", "room"): "what is left in a bin",
    ("controller/scalers/shared/packing.py", "room"): "what is left in a bin",
    ("controller/scalers/shared/packing_fast.py", "room"): "what is left in a bin",
    ("controller/queueing/erlang.py", "room"): "places of a queue",
    ("simulator/queue_kernel.py", "room"): "places of a queue",
    ("penstock/limits.py", "room"): "replicas that the limit still allows",
}
"""(file, word): why it may stay."""

ROOM_TO_SPARE = re.compile(
    r"\broom (?:for|in|left|to|on)\b|\b(?:no|enough|more|has|had|have|make|leaves?) room\b|\b_?(?:rate|lag|make)_room\b"
)
"""Room in its ordinary sense: space that is left, as in packing."""


def tracked() -> list[str]:
    patterns = ("*.py", "*.md", "*.toml", "*.yaml", "*.yml", "*.sh", "*.cfg", "Makefile")
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    return [name for name in files if (ROOT / name).exists()]


def words(text: str) -> str:
    """Text with its identifiers taken apart: ``ReplicaPods`` and ``named_pods`` become ``named pods``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower()


NICKNAME = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(WORDS, key=len, reverse=True))})(?![a-z])")


def nicknames() -> Iterator[str]:
    for name in tracked():
        path = Path(name)
        if path.suffix == ".py" and path.stem in MODULES:
            yield f"{name}: module name"
        for number, line in enumerate([path.stem, *(ROOT / name).read_text().splitlines()]):
            for found in NICKNAME.findall(words(ROOM_TO_SPARE.sub("", line))):
                if (name, found) not in EXCEPTIONS:
                    yield f"{name}:{number}: {found!r} → {WORDS[found]}"


def test_code_and_documentation_use_the_terms_of_the_field() -> None:
    assert sorted(nicknames()) == []


def test_each_exception_is_still_needed() -> None:
    present = set(tracked())
    unused = [
        f"{name}: {word}"
        for name, word in EXCEPTIONS
        if name not in present or word not in NICKNAME.findall(words(f"{Path(name).stem} {(ROOT / name).read_text()}"))
    ]
    assert unused == []
