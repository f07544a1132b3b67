"""Sets of points in time by key, and the pulls for them."""

import random

import numpy as np

from cepheid.acquire.intervals import IntervalSet
from cepheid.acquire.keyed import Key, KeyedSet, pulls

TIMES, KEYS = range(30), ("x", "y", "z")


def drawn(rng: random.Random) -> KeyedSet:
    def times() -> IntervalSet:
        begins = [rng.choice(TIMES) for _ in range(rng.randint(0, 3))]
        return IntervalSet.of((begin, min(begin + rng.randint(0, 6), 29)) for begin in begins)

    parts: dict[Key, IntervalSet] = {key: own for key in KEYS if rng.random() < 0.6 and (own := times())}
    return KeyedSet(times() if rng.random() < 0.4 else IntervalSet(), parts)


def points(of: KeyedSet) -> set[tuple[int, str]]:
    return {(time, key) for key in KEYS for time in TIMES if of.of(key).contains(time)}


def test_operations_are_those_of_sets_of_points() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        one, other = drawn(rng), drawn(rng)
        assert points(one | other) == points(one) | points(other)
        assert points(one & other) == points(one) & points(other)
        left = one - other
        assert points(left) >= points(one) - points(other)
        assert points(left) == points(one) - points(other) or one.whole
        some = IntervalSet(((4, 20),))
        assert points(one.within(some)) == {point for point in points(one) if 4 <= point[0] <= 20}
        assert one.flattened == IntervalSet.of((time, time) for time, _ in points(one))
        assert KeyedSet.from_data(one.to_data()) == one
        held = one.holds(np.array(TIMES), ["x"] * 30)
        assert held.tolist() == [(time, "x") in points(one) for time in TIMES]


def test_pulls_cover_what_is_missing_and_nothing_twice() -> None:
    shared = 0
    for seed in range(300):
        rng = random.Random(seed)
        asked, wanted = drawn(rng), drawn(rng)
        wanted = KeyedSet(parts=wanted.parts)
        known = points(asked)
        for pull in pulls(wanted - asked, asked):
            new = points(pull.asked)
            assert not new & known
            known |= new
            shared += len(pull.keys or ()) > 1
        assert known >= points(wanted)
    assert shared > 20
