"""Build hook: in the wheel, every package lies in ``penstock``, so that none hides a user's package of the same name.

``controller.scalers.rps`` of a checkout is ``penstock.controller.scalers.rps`` of an installed Penstock. The hook gets
the finished wheel, moves the folders, and renames modules in imports, in strings, in comments and in
``entry_points.txt``. An editable wheel stays as it is: there, ``penstock.checkout_names`` makes the longer names
importable. ``PENSTOCK_WHEEL_NAMES=short`` leaves a wheel as it is, which the images use: the manifests start
``python -m controller.main`` and the like in them.

Source: docs/decisions/0021-names-of-the-installed-packages.md.
"""

import base64
import csv
import hashlib
import io
import os
import re
import tokenize
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = "penstock"
SHORT = "PENSTOCK_WHEEL_NAMES"
SHORT_IN_STRINGS = ("infra/kubernetes/functions.py", "infra/runs/pods.py", "penstock/checkout_names.py")
"""Only the imports of these files are renamed: two name modules as the images call them, one compares both names."""


class CustomBuildHook(BuildHookInterface[Any]):
    """Renames the packages of a wheel that is to be installed."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Rewrite the wheel in place."""
        del build_data
        if version == "standard" and os.environ.get(SHORT) != "short":
            packages = [each for each in self.build_config.packages if each != KERNEL]
            rename(Path(artifact_path), packages)


class Names:
    """Renames what names a module of ``packages``. ``modules``: all that exist, such as ``controller.loop``."""

    def __init__(self, packages: Collection[str], modules: Collection[str]) -> None:
        self._packages = frozenset(packages)
        self._modules = frozenset(modules)
        self._named = re.compile(rf"(?<![\w./-])(?:{'|'.join(sorted(packages))})(?:\.\w+)+")

    def source(self, text: str, *, strings: bool = True) -> str:
        """A Python file. ``strings``: whether names in its strings and comments are renamed too. Raises ValueError for
        ``import a.b``, which binds ``a``: there is no such line to be renamed to.
        """
        lines = text.splitlines(keepends=True)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        changes: list[tuple[int, int, int, str]] = []
        begins = True
        for index, token in enumerate(tokens):
            if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                begins = True
                continue
            if begins and token.type == tokenize.NAME and tokens[index + 1].string in self._packages:
                row, column = tokens[index + 1].start
                if token.string == "from":
                    changes.append((row, column, column, f"{KERNEL}."))
                elif token.string == "import":
                    if (
                        tokens[index + 2].type not in (tokenize.NEWLINE, tokenize.COMMENT)
                        and tokens[index + 2].string != ";"
                    ):
                        raise ValueError(f"line {row}: write it as `from … import …`: {token.line.strip()}")
                    changes.append((row, token.start[1], token.start[1], f"from {KERNEL} "))
            elif strings and token.type in (tokenize.STRING, tokenize.COMMENT) and token.start[0] == token.end[0]:
                changes.append((token.start[0], token.start[1], token.end[1], self.text(token.string)))
            elif strings and token.type == tokenize.STRING:
                for row in range(token.start[0], token.end[0] + 1):
                    begin = token.start[1] if row == token.start[0] else 0
                    end = token.end[1] if row == token.end[0] else len(lines[row - 1])
                    changes.append((row, begin, end, self.text(lines[row - 1][begin:end])))
            begins = token.string == ";"
        for row, begin, end, new in sorted(changes, reverse=True):
            line = lines[row - 1]
            lines[row - 1] = line[:begin] + new + line[end:]
        return "".join(lines)

    def text(self, text: str) -> str:
        """Any text: names of modules that exist, and of what is in them."""
        return self._named.sub(lambda found: self._renamed(found[0]), text)

    def _renamed(self, name: str) -> str:
        parts = name.split(".")
        known = any(".".join(parts[:length]) in self._modules for length in range(2, len(parts) + 1))
        return f"{KERNEL}.{name}" if known else name


def rename(wheel: Path, packages: Collection[str]) -> None:
    """Move ``packages`` of a wheel into ``penstock``. The order of its files stays, their hashes are made again."""
    with zipfile.ZipFile(wheel) as archive:
        files = {each: archive.read(each) for each in archive.infolist()}
    names = Names(packages, {module_of(each.filename) for each in files if each.filename.endswith(".py")})
    written: list[tuple[str, bytes]] = []
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in files.items():
            name = info.filename
            if name.endswith(".dist-info/RECORD"):
                data = _record(name, written)
            elif name.endswith((".py", ".pyi")):
                try:
                    data = names.source(data.decode(), strings=name not in SHORT_IN_STRINGS).encode()
                except ValueError as error:
                    raise ValueError(f"{name}, {error}") from None
            elif name.endswith(".dist-info/entry_points.txt"):
                data = names.text(data.decode()).encode()
            if name.partition("/")[0] in packages:
                name = f"{KERNEL}/{name}"
            written.append((name, data))
            moved = zipfile.ZipInfo(name, info.date_time)
            moved.external_attr, moved.compress_type = info.external_attr, info.compress_type
            archive.writestr(moved, data)
    wheel.write_bytes(whole.getvalue())


def module_of(file: str) -> str:
    """``controller.loop`` of ``controller/loop.py``, ``controller`` of ``controller/__init__.py``."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _record(name: str, written: list[tuple[str, bytes]]) -> bytes:
    """RECORD of a wheel: each file with its hash and length in bytes, and itself without."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for file, data in written:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((file, f"sha256={digest}", len(data)))
    rows.writerow((name, "", ""))
    return text.getvalue().encode()
