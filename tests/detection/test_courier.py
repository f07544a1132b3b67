"""Requests are repeated up to a limit, also where only a part of their answers is missing."""

from __future__ import annotations

import random

import pyarrow as pa
from detection.running import World, drawn_table

from cepheid.acquire.plans import naive
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.acquisition import Acquisition
from cepheid.detection.courier import Courier

LIMIT = 4


def following() -> tuple[Acquisition, Request]:
    """A subscription."""
    table = drawn_table(random.Random(1), 20, 100)
    world = World.of("complex Q on A as a, B as b event seq(a, !b; 5)", table)
    logs = world.logs()
    acquisition = Acquisition([world.program(naive(world.tree.root), logs)])
    (request,) = [r for r in acquisition.start().requests if (r.source, r.stream) == ("left", "B")]
    assert request.follow
    return acquisition, request


def nothing(request: Request, begin: int, complete: int) -> Answer:
    schema = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64()})
    return Answer(request.source, request.stream, begin, complete, begin, pa.RecordBatch.from_pylist([], schema))


def test_a_part_of_a_subscription_that_never_comes_is_given_up() -> None:
    """While later events come, so that the source is alive."""
    acquisition, request = following()
    courier = Courier(acquisition, 10, LIMIT)
    courier.sent([request], 0)
    acquisition.receive([nothing(request, request.begin, 9)])
    asked, lost = 0, []
    for now in range(0, 40 * 10, 5):
        acquisition.receive([nothing(request, 20 + now, 24 + now)])
        again, failed = courier.due(now)
        asked += sum((one.begin, one.end) == (10, 19) for one in again)
        lost += [gap for one in failed for gap in acquisition.give_up(one, "no answer").gaps]
    assert [(gap.begin, gap.end) for gap in lost] == [(10, 19)]
    assert asked == LIMIT
    assert acquisition.unanswered(request).first == 420


def test_holes_that_are_filled_do_not_count_against_later_ones() -> None:
    acquisition, request = following()
    courier = Courier(acquisition, 10, LIMIT)
    courier.sent([request], 0)
    acquisition.receive([nothing(request, request.begin, 9)])
    for now in range(0, 40 * 10, 10):
        acquisition.receive([nothing(request, 20 + now, 24 + now)])  # five ticks are lost each time
        again, failed = courier.due(now)
        assert not failed
        first = [one for one in again if not one.follow][:1]
        acquisition.receive([nothing(request, one.begin, one.end) for one in first])
