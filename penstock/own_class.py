"""A class of one's own, named on the command line as ``path.py:Class``."""

import importlib.util
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any

from penstock.checkout_names import FOLDERS
from penstock.errors import PenstockError


def is_own(text: str) -> bool:
    """Whether a text of the command line names a class in a file."""
    return ".py:" in text


def load_own(text: str, what: str, method: str) -> type[Any]:
    """The class that ``path.py:Class`` names: a ``what``, known by its ``method``, with a ``name``.

    PenstockError, with the line of the file, if it cannot be imported or has no such class.
    """
    path_text, _, class_name = text.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise PenstockError(f"{path}: no such file; a {what} from a file is given as path.py:Class")
    # Two files of the same name are two modules: dataclasses look their types up by module.
    module_name = f"penstock_own_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise PenstockError(f"{path}: cannot be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        message = error.msg if isinstance(error, SyntaxError) else _one_line(error)
        if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in FOLDERS:
            message += f"; an installed Penstock has it as penstock.{error.name}"
        raise PenstockError(
            f"{path}{_line(error, path)}: {type(error).__name__} while importing it: {message}"
        ) from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not hasattr(kind, method):
        own = [
            name
            for name, each in vars(module).items()
            if isinstance(each, type) and each.__module__ == module_name and hasattr(each, method)
        ]
        found = f"it has {', '.join(own) or 'none'}"
        raise PenstockError(f"{path}: no {what} class {class_name!r} in it (a class with {method}); {found}")
    if not isinstance(getattr(kind, "name", None), str):
        raise PenstockError(f"{text}: the class has no `name`, a text such as name = 'my-{what}'; {page_of(what)}")
    return kind


def page_of(what: str) -> str:
    """Where a complete one is."""
    return f"docs/your-own-{what}.md has a complete one"


def failure(text: str, what: str, doing: str, error: Exception) -> PenstockError:
    """The error, in one line, for a class ``path.py:Class`` that fails; with the line of its file, if it is in it."""
    path = Path(text.rpartition(":")[0])
    return PenstockError(
        f"{path}{_line(error, path)}: {what} fails when it {doing}: {type(error).__name__}: {_one_line(error)}"
    )


def _line(error: BaseException, path: Path) -> str:
    """``:12``: the last line of that file in the traceback; nothing if it is not in it."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f":{lines[-1]}" if lines else ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or "no message"
