"""Runs an acquisition plan over logs that are complete: every request is answered at once."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cepheid.detection.acquisition import Acquisition
from cepheid.io.event_log import EventLog


def replay(acquisition: Acquisition, logs: Mapping[str, EventLog]) -> pa.Table:
    """All matches."""
    found = []
    result = acquisition.start()
    while result.requests:
        result = acquisition.receive([logs[r.source].answer(r, r.begin) for r in result.requests])
        found.append(result.matches)
    return pa.concat_tables([acquisition.schema.empty_table(), *found])
