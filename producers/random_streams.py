"""One stream of random numbers for each choice that a seed makes: changing one choice leaves the others alone."""

from typing import NamedTuple

import numpy as np

from penstock.errors import PenstockError


class Streams(NamedTuple):
    """Generators (PCG64), independent of each other. The order is part of what a seed means: only append."""

    counts: np.random.Generator
    positions: np.random.Generator
    partitions: np.random.Generator
    payments: np.random.Generator


def streams(seed: int) -> Streams:
    """The streams of ``seed``, each at its beginning. Raises PenstockError for a negative seed."""
    if seed < 0:
        raise PenstockError(f"seed {seed}: has to be 0 or more")
    children = np.random.SeedSequence(seed).spawn(len(Streams._fields))
    return Streams(*(np.random.Generator(np.random.PCG64(child)) for child in children))
