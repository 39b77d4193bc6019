"""``python -m grafana.generate``: write the boards as JSON; ``--check`` only checks that the files are up to date."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.boards import BOARDS

FOLDER: Final = Path(__file__).with_name("dashboards")


def generated() -> dict[str, str]:
    """File name → its text, the same on every machine."""
    return {
        f"{str(board.uid).removeprefix('penstock-')}.json": json.dumps(
            board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False
        )
        + "\n"
        for board in BOARDS
    }


def differences(folder: Path, wanted: dict[str, str]) -> list[str]:
    """A line for every missing, stale or unknown file."""
    found = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.json")}
    return [
        *(f"{name}: is missing" for name in sorted(wanted.keys() - found.keys())),
        *(f"{name}: belongs to no board" for name in sorted(found.keys() - wanted.keys())),
        *(
            f"{name}: is not what the code says"
            for name in sorted(wanted)
            if found.get(name, wanted[name]) != wanted[name]
        ),
    ]


def write(folder: Path, wanted: dict[str, str]) -> None:
    """Write every board and remove other JSON files."""
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.json"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m grafana.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 if a file is not up to date")
    wanted = generated()
    if not parser.parse_args(arguments).check:
        write(FOLDER, wanted)
        return 0
    stale = differences(FOLDER, wanted)
    for line in stale:
        print(f"{line}: run `python -m grafana.generate`", file=sys.stderr)  # noqa: T201
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
