import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.measures import completions
from pipelines.deduplication import BLOCK_SIZE, EarliestResults

RESULTS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, BLOCK_SIZE - 1, BLOCK_SIZE, 7 * BLOCK_SIZE + 3]), st.integers(0, 5), st.integers(0, 9)
    ),
    max_size=30,
)


def marks(finished_ns: list[int], cell: list[int]) -> np.ndarray:
    return np.asarray((finished_ns, cell), dtype=np.int64)


def ids(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


@given(st.lists(RESULTS, max_size=5))
def test_after_any_batches_in_any_order_each_event_counts_once_at_its_earliest_finish(
    batches: list[list[tuple[int, int, int]]],
) -> None:
    earliest = EarliestResults()
    counted: list[int] = []
    for batch in batches:
        columns = np.asarray(batch, dtype=np.int64).reshape(-1, 3).T
        added, removed = earliest.absorb(columns[0], columns[1:])
        counted.extend(added[0].tolist())
        for finished_ns in removed[0].tolist():
            counted.remove(finished_ns)
    everything = np.asarray([row for batch in batches for row in batch], dtype=np.int64).reshape(-1, 3).T
    truth = completions(everything[0], everything[1], everything[1], everything[1], everything[1])
    assert sorted(counted) == sorted(truth.finished_ns.tolist())


def test_an_earlier_result_takes_back_what_was_counted_before() -> None:
    earliest = EarliestResults()
    earliest.absorb(ids(5), marks([2000], [70]))
    added, removed = earliest.absorb(ids(5), marks([1000], [60]))
    assert (added[0].tolist(), added[1].tolist()) == ([1000], [60])
    assert (removed[0].tolist(), removed[1].tolist()) == ([2000], [70])


def test_a_later_duplicate_changes_nothing() -> None:
    earliest = EarliestResults()
    earliest.absorb(ids(5), marks([1000], [60]))
    added, removed = earliest.absorb(ids(5, 5), marks([2000, 1000], [70, 60]))
    assert added.size == removed.size == 0
