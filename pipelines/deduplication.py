"""Earliest result of each event, so that every event counts once, however often it was delivered.

At-least-once delivery brings an event's result again, and at times an earlier one after a later one (a worker that was
frozen before it could publish). What was counted is therefore remembered, and taken back where an earlier result turns
up: 16 bytes an event, and no watermark, so that a result counts however late it comes.
"""

from typing import Final

import numpy as np

from penstock.measures import Ints

BLOCK_BITS: Final = 10
BLOCK_SIZE: Final = 1 << BLOCK_BITS
"""Ids in a block. Ids grow with intended time, so that a batch of results touches the few newest blocks only."""
UNSEEN: Final = np.iinfo(np.int64).max


class EarliestResults:
    """What was counted for each id. Blocks of ids appear as they are needed.

    Results are of shape (2, results): when they finished in ns, and an opaque cell to count.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Ints] = {}

    def absorb(self, event_id: Ints, results: Ints) -> tuple[Ints, Ints]:
        """Take results in; returns (those that count from now on, those that no longer do)."""
        order = np.lexsort((results[0], event_id))
        ids, earliest = np.unique(event_id[order], return_index=True)
        rows = order[earliest]
        added, removed = [results[:, :0]], [results[:, :0]]
        for block in np.unique(ids >> BLOCK_BITS).tolist():
            if (known := self._blocks.get(block)) is None:
                known = self._blocks[block] = np.full((2, BLOCK_SIZE), UNSEEN)
            inside = ids >> BLOCK_BITS == block
            slot, new = ids[inside] & (BLOCK_SIZE - 1), results[:, rows[inside]]
            earlier = new[0] < known[0, slot]
            slot, new = slot[earlier], new[:, earlier]
            old = known[:, slot]
            removed.append(old[:, old[0] != UNSEEN])
            known[:, slot] = new
            added.append(new)
        return np.concatenate(added, axis=1), np.concatenate(removed, axis=1)
