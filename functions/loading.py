"""A handler's folder as the function of this process, just as it would be in its image."""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError

log = logging.getLogger("loading")

PACKAGE = Path(__file__).parent
TEMPLATE = PACKAGE / "template" / "python3-penstock"
HANDLERS = PACKAGE / "handlers"

Handle = Callable[[Any, Any], Any]


def use_template() -> None:
    """Make the template's modules (index, service_floor, claim_check) importable."""
    if str(TEMPLATE) not in sys.path:
        sys.path.insert(0, str(TEMPLATE))


def handler_folder(image: str, roots: tuple[Path, ...] = (HANDLERS,)) -> Path:
    """The folder of the handler that an image is built from: ``registry/penstock/left-reduce:tag`` is of
    ``left_reduce``. Raises PenstockError if none of ``roots`` has it.
    """
    name = image.rsplit("/", 1)[-1].split("@")[0].split(":")[0]
    for root in roots:
        folder = root / name.replace("-", "_")
        if name.replace("-", "").isalnum() and (folder / "handler.py").is_file():
            return folder
    there = sorted(path.parent.name.replace("_", "-") for root in roots for path in root.glob("*/handler.py"))
    raise PenstockError(f"image {image!r}: no handler for it here; there are {', '.join(there)}")


def load_handler(folder: Path) -> Handle:
    """Import ``folder/handler.py`` as ``function.handler`` and return its ``handle``; what was imported as
    ``function`` before is forgotten. Raises PenstockError if it has none or its import fails.
    """
    use_template()
    for name in [name for name in sys.modules if name == "function" or name.startswith("function.")]:
        del sys.modules[name]
    package = ModuleSpec("function", None, is_package=True)
    package.submodule_search_locations = [str(folder)]
    sys.modules["function"] = importlib.util.module_from_spec(package)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module("function.handler")
    except Exception as error:  # it may raise anything
        log.exception("%s cannot be imported", folder / "handler.py")
        raise PenstockError(f"{folder / 'handler.py'}: {type(error).__name__}: {error}") from None
    handle: Handle | None = getattr(module, "handle", None)
    if not callable(handle):
        raise PenstockError(f"{folder / 'handler.py'}: there is no handle(event, context)")
    return handle
