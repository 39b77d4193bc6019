"""``njit`` of numba where it is installed (extra ``fast``); else functions are interpreted, with the same results."""

try:
    from numba import njit

    COMPILED = True
except ModuleNotFoundError:
    from penstock.interpreted import njit  # type: ignore[no-redef]

    COMPILED = False

__all__ = ["COMPILED", "njit"]
