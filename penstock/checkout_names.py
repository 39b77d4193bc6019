"""In a checkout, makes ``penstock.controller.loop`` another name of ``controller.loop``, the same module.

An installed Penstock has its packages in ``penstock`` (docs/decisions/0021-names-of-the-installed-packages.md). A
user's file, which imports ``penstock.controller…``, thereby works in both.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType

FOLDERS = (
    "controller", "producers", "consumers", "functions", "pipelines", "simulator", "infra", "report", "experiments",
    "grafana",
)  # fmt: skip
KERNEL = "penstock."


class _OtherName(Loader):
    """Loads the module of the shorter name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        del spec
        self._module = import_module(self._name)
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set that of the longer name

    def get_code(self, fullname: str) -> CodeType | None:
        """For ``python -m``."""
        del fullname
        spec = find_spec(self._name)
        assert spec is not None and isinstance(spec.loader, InspectLoader)
        return spec.loader.get_code(self._name)


class _Names(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        name = fullname.removeprefix(KERNEL)
        if name == fullname or name.partition(".")[0] not in FOLDERS or find_spec(name) is None:
            return None
        return ModuleSpec(fullname, _OtherName(name))


def install() -> None:
    """Once in a process; nothing where the packages lie in ``penstock``."""
    is_checkout = not (Path(__file__).parent / FOLDERS[0]).is_dir()
    if is_checkout and not any(isinstance(each, _Names) for each in sys.meta_path):
        sys.meta_path.insert(0, _Names())  # before the finder of paths, which would load a second copy
