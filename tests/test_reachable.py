"""Every product module can be reached, and every product definition is used by product code, not by tests alone."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["importlinter"]["root_packages"]
GENERATED = ("controller/keda/externalscaler_pb2.py", "controller/keda/health_pb2.py")
LOADED_BY_PATH = ("functions/handlers/", "functions/template/")
"""Folders whose files are built into images or loaded from their path: ``functions.loading``."""
PLAIN_DECORATORS = {
    "property", "cached_property", "staticmethod", "classmethod", "abstractmethod", "override", "overload", "cache",
    "lru_cache", "contextmanager", "asynccontextmanager", "dataclass", "njit", "total_ordering", "wraps", "setter",
    "runtime_checkable", "final",
}  # fmt: skip
"""Decorators that register nothing. Any other one (a command, a route, an event handler) is a use."""

CALLED_BY_LIBRARIES = {
    "collect": "prometheus_client.registry.Collector",
    "describe": "prometheus_client.registry.Collector",
    "metadata": "kafka-python's partition assignor",
    "on_assignment": "kafka-python's partition assignor",
    "assign": "kafka-python's partition assignor",
    "on_partitions_revoked": "kafka-python's rebalance listener",
    "on_partitions_lost": "kafka-python's rebalance listener",
    "on_partitions_assigned": "kafka-python's rebalance listener",
    "get_environment": "waitress.task.WSGITask",
    "task_class": "waitress.channel.HTTPChannel",
    "received": "waitress.channel.HTTPChannel",
    "capture_signals": "uvicorn.Server",
    "handle_error": "socketserver.BaseServer",
    "log_message": "http.server.BaseHTTPRequestHandler",
    "execute": "circus.commands.base.Command",
    "validate": "circus.commands.base.Command",
    "tick": "locust.LoadTestShape",
    "build": "grafana_foundation_sdk.cog.builder.Builder",
    "to_json": "grafana_foundation_sdk models",
    "_adapter_emit_data": "pika.SelectConnection",
    "add_watcher": "circus.arbiter.Arbiter",
    "Programs": "circus.commands, which registers every subclass of Command",
    "EventsPerSecond": "Locust, which takes the load shapes that a locustfile defines",
    "FollowSchedule": "Locust, which takes the load shapes that a locustfile defines",
    "simpleStreamReader": "pyspark.sql.datasource.DataSource",
    "initialOffset": "pyspark.sql.datasource.SimpleDataSourceStreamReader",
    "readBetweenOffsets": "pyspark.sql.datasource.SimpleDataSourceStreamReader",
    "GetMetrics": "KEDA's external scaler (gRPC)",
    "GetMetricSpec": "KEDA's external scaler (gRPC)",
    "IsActive": "KEDA's external scaler (gRPC)",
    "StreamIsActive": "KEDA's external scaler (gRPC)",
    "StreamMetricSpec": "KEDA's external scaler (gRPC)",
    "create_module": "importlib.abc.Loader",
    "find_spec": "importlib.abc.MetaPathFinder",
    "Check": "gRPC's health service",
    "Watch": "gRPC's health service",
}
"""Definitions that override or implement something of a library, by name, with the library's class."""


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@cache
def product_files() -> dict[Path, ast.Module]:
    """Syntax trees of all product files and of the examples in the documentation."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    files += (ROOT / "docs").rglob("*.py")
    return {file.relative_to(ROOT): ast.parse(file.read_text()) for file in sorted(files)}


@cache
def product_nodes() -> dict[Path, list[ast.AST]]:
    """All nodes of each tree but strings that stand by themselves: a word in a docstring is no use."""
    found = {}
    for file, tree in product_files().items():
        nodes = list(ast.walk(tree))
        alone = {
            id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        found[file] = [node for node in nodes if id(node) not in alone]
    return found


def module_of(file: Path) -> str:
    """Dotted name of a file."""
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def is_product(file: Path) -> bool:
    """Whether a file is a module of a product package."""
    return file.parts[0] in PACKAGES and not str(file).startswith((*LOADED_BY_PATH, *GENERATED))


@cache
def imported_modules() -> set[str]:
    """All modules and names that product files import, as dotted names."""
    found: set[str] = set()
    for nodes in product_nodes().values():
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def entry_points() -> set[str]:
    """Modules that pyproject.toml names."""
    project = PYPROJECT["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    return {target.partition(":")[0] for group in groups for target in group.values()}


def text_of_targets() -> str:
    """All that may name a module to run or to load: documentation, manifests, scripts, strings in Python files."""
    suffixes = {".py", ".md", ".sh", ".yaml", ".yml", ".toml", ".json", ""}
    texts = [
        file.read_text(errors="replace")
        for folder in (*PACKAGES, "docs", ".ci")
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix in suffixes and file.stat().st_size < 1_000_000
    ]
    return "\n".join([*texts, *(file.read_text() for file in (ROOT / "Makefile", ROOT / "README.md"))])


def test_every_module_is_imported_or_an_entry_point() -> None:
    imported, entries, texts = imported_modules(), entry_points(), text_of_targets()
    unreachable = []
    for file in product_files():
        name = module_of(file).removesuffix(".__main__")
        if not is_product(file) or file.name == "__init__.py" or name in imported | entries:
            continue
        if re.search(rf'(-m\s+|"-m",\s*f?")(\{{[a-z_]+\}}\.)?{re.escape(name)}\b', texts) or str(file) in texts:
            continue
        if f"{name}.py" in texts or file.name in texts:  # a file that another program loads: Locust, Spark
            continue
        unreachable.append(name)
    assert not unreachable, f"no import and no entry point leads to {', '.join(unreachable)}"


def top_level(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, classes and constants of a module."""
    for node in tree.body:
        if isinstance(node, DEFINITIONS) and not any(map(registers, node.decorator_list)):
            yield node.name, node.lineno
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


def methods(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Methods and properties of a module's classes."""
    for owner in nodes:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(node, DEFINITIONS[:2]) and not any(map(registers, node.decorator_list)):
                yield node.name, node.lineno


def registers(decorator: ast.expr) -> bool:
    """Whether a decorator hands the function to a library."""
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
    return name not in PLAIN_DECORATORS


def names_in(nodes: list[ast.AST]) -> set[str]:
    """Names that a module reads, also in annotations that are strings."""
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return names | strings_in(nodes)


def strings_in(nodes: list[ast.AST]) -> set[str]:
    """Words of strings without a space (``getattr``, annotations), f-strings aside."""
    texts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    return {
        word
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
        if re.fullmatch(r"[\w.:|\[\]]+", node.value)
        for word in re.findall(r"\w+", node.value)
    }


def attributes_in(nodes: list[ast.AST]) -> set[str]:
    """Names behind a dot."""
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def unused() -> list[str]:
    """Definitions in product code that no product code mentions."""
    nodes = product_nodes()
    imported = imported_modules() | {target.replace(":", ".") for target in entry_targets() | references()}
    reached = set().union(*map(attributes_in, nodes.values())) | set().union(*map(strings_in, nodes.values()))
    reached |= set(CALLED_BY_LIBRARIES)
    for template in (file for package in PACKAGES for file in (ROOT / package).rglob("*.html*")):
        reached.update(re.findall(r"\w+", template.read_text()))
    found = []
    for file, tree in product_files().items():
        if not is_product(file):
            continue
        module, own = module_of(file), names_in(nodes[file])
        imports_module = module in imported
        for name, line in top_level(tree):
            used = name in own or f"{module}.{name}" in imported or (imports_module and name in reached)
            if not (used or name.startswith("__") or name in CALLED_BY_LIBRARIES):
                found.append(f"{file}:{line}: {name}")
        for name, line in methods(nodes[file]):
            if not (name in reached or name.startswith("__")):
                found.append(f"{file}:{line}: {name}")
    return found


def entry_targets() -> set[str]:
    """``module:attribute`` of every entry point."""
    project = PYPROJECT["project"]
    return {target for group in (project["scripts"], *project["entry-points"].values()) for target in group.values()}


def references() -> set[str]:
    """``module:attribute`` of every part of a fleet kind."""
    return {
        node.value
        for file, nodes in product_nodes().items()
        if file.match("controller/fleets/*/__init__.py")
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value
    }


def test_no_product_definition_is_used_by_tests_only() -> None:
    found = unused()
    assert found == [], "\n".join(found)


if __name__ == "__main__":
    print("\n".join(unused()))
