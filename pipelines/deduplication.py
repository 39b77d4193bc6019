"""Earliest result of each event, so that every event counts once, however often it was delivered.

At-least-once delivery brings an event's result again, and at times an earlier one after a later one (a worker that was
frozen before it could publish). What was counted is therefore remembered, and taken back where an earlier result turns
up: 16 bytes an event, and no watermark, so that a result counts however late it comes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.measures import Ints

BLOCK_BITS: Final = 10
BLOCK_SIZE: Final = 1 << BLOCK_BITS
"""Ids in a block. Ids grow with intended time, so that a batch of results touches the few newest blocks only."""

UNSEEN: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Results as a histogram counts them: when they finished, and an opaque ``cell`` to count. Arrays of one length."""

    finished_ns: Ints
    cell: Ints

    def __getitem__(self, rows: Ints) -> "Marks":
        return Marks(self.finished_ns[rows], self.cell[rows])

    def __len__(self) -> int:
        return len(self.finished_ns)


class EarliestResults:
    """What was counted for each id. Blocks of ids appear as they are needed: a stray huge id costs one block."""

    def __init__(self) -> None:
        self._blocks: dict[int, Marks] = {}

    def absorb(self, event_id: Ints, results: Marks) -> tuple[Marks, Marks]:
        """Take results in; returns (those that count from now on, those that no longer do).

        A negative id is no id: such results cannot be known again, and all of them count.
        """
        order = np.lexsort((results.finished_ns, event_id))
        ids = event_id[order]
        anonymous = int(np.searchsorted(ids, 0))
        earliest = anonymous + np.unique(ids[anonymous:], return_index=True)[1]
        added, removed = [results[order[:anonymous]]], []
        rows, ids = order[earliest], ids[earliest]
        for block in np.unique(ids >> BLOCK_BITS).tolist():
            inside = ids >> BLOCK_BITS == block
            new, old = self._absorb(block, ids[inside] & (BLOCK_SIZE - 1), results[rows[inside]])
            added.append(new)
            removed.append(old)
        return _join(added), _join(removed)

    def _absorb(self, block: int, slot: Ints, results: Marks) -> tuple[Marks, Marks]:
        """One block; ``slot``: ids within it, each once."""
        known = self._blocks.get(block)
        if known is None:
            known = Marks(np.full(BLOCK_SIZE, UNSEEN, dtype=np.int64), np.zeros(BLOCK_SIZE, dtype=np.int64))
            self._blocks[block] = known
        earlier = np.flatnonzero(results.finished_ns < known.finished_ns[slot])
        slots, new = slot[earlier], results[earlier]
        old = known[slots[known.finished_ns[slots] != UNSEEN]]
        known.finished_ns[slots] = new.finished_ns
        known.cell[slots] = new.cell
        return new, old


def _join(parts: list[Marks]) -> Marks:
    nothing = np.empty(0, dtype=np.int64)
    return Marks(
        np.concatenate([nothing, *(part.finished_ns for part in parts)]),
        np.concatenate([nothing, *(part.cell for part in parts)]),
    )
