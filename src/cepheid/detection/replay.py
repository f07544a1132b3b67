"""Runs an acquisition plan over logs that are complete: every request is answered at once."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cepheid.detection.acquisition import Acquisition
from cepheid.io.event_log import EventLog


def replay(acquisition: Acquisition, logs: Mapping[str, EventLog]) -> list[pa.Table]:
    """All matches of each program."""
    found = [[detector.schema.empty_table()] for detector in acquisition.detectors]
    result = acquisition.start()
    while result.requests:
        result = acquisition.receive([logs[r.source].answer(r, r.begin) for r in result.requests])
        for own, matches in zip(found, result.matches, strict=True):
            own.append(matches)
    return [pa.concat_tables(own) for own in found]
