"""Sets of intervals, against sets of points."""

from hypothesis import given
from hypothesis import strategies as st

from cepheid.acquire.intervals import ALWAYS, END, NEVER, IntervalSet

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def points(found: IntervalSet) -> set[int]:
    return {time for begin, end in found.intervals for time in range(begin, end + 1)}


def within(drawn: list[tuple[int, int]]) -> set[int]:
    return {time for begin, end in drawn for time in range(begin, end + 1)}


@given(intervals, intervals, st.integers(0, 5), st.integers(0, 5))
def test_operations_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]], before: int, after: int
) -> None:
    a, b = IntervalSet.of(one), IntervalSet.of(other)
    assert points(a) == within(one)
    assert points(a | b) == within(one) | within(other)
    assert points(a & b) == within(one) & within(other)
    assert points(a - b) == within(one) - within(other)
    assert points(a.extended(before, after)) == {t + shift for t in within(one) for shift in range(-before, after + 1)}
    assert all(a.contains(t) == (t in within(one)) for t in range(-1, 32))
    assert all(end + 1 < begin for (_, end), (begin, _) in zip(a.intervals, a.intervals[1:], strict=False))


def test_the_whole_of_time() -> None:
    assert ALWAYS.complement() == NEVER
    assert NEVER.complement() == ALWAYS
    assert IntervalSet(((3, 5),)).from_time(4) == IntervalSet(((4, 5),))
    assert NEVER.first == END
