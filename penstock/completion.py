"""Completion of names in a shell: ``penstock --install-completion``. Looked up when they are asked for."""

RUN_FILES = ("run.json", "compare.json")


def scalers(incomplete: str) -> list[str]:
    """Registered scalers; of a comma-separated list, the last name."""
    from penstock.registry import scaler_names

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in scaler_names() if name.startswith(last)]


def runs(incomplete: str) -> list[str]:
    """Directories of runs and comparisons, the newest first."""
    from penstock.settings import Folders

    found = {path.parent for path in Folders().runs.glob("*/*.json") if path.name in RUN_FILES}
    return [text for text in sorted(map(str, found), reverse=True) if text.startswith(incomplete)]
