"""Draws the first match of a query on a time line of its events, as SVG.

python tools/timeline.py QUERY_FILE EVENTS.csv > picture.svg     one picture
python tools/timeline.py --cookbook                              the pictures of docs/cookbook

--type-column and --time-column name the columns of the type and the time, if they are not `type` and `ts`.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from datetime import datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

import cepheid
from cepheid.errors import CepheidError, listing
from cepheid.lang import DIALECTS, parse
from cepheid.pattern import partition_attributes

COOKBOOK = Path(__file__).parent.parent / "docs" / "cookbook"
_LANGUAGES = "|".join(re.escape(dialect.name) for dialect in DIALECTS)
_FIRST_QUERY = re.compile(rf"^```(?:{_LANGUAGES})\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LEFT, _STEP, _TOP, _LANE, _RADIUS, _LINE = 130, 84, 26, 62, 7, 18
_NAME, _QUERY = 14, 120
"""The most characters of a type, and of a line of the query."""
_STYLE = "font-family='ui-monospace, monospace' font-size='12'"
_PLAIN, _BOUND, _TEXT = "#b8b8b8", "#c2410c", "#333333"


def picture(query: str, events: pa.Table, type_column: str = "type", time_column: str = "ts") -> str:
    """The query, its events in a lane for each type, and the events of the first match, joined and named."""
    for column in (type_column, time_column):
        if column not in events.column_names:
            raise CepheidError(
                f"the events have no column `{column}`",
                expected=f"one of {listing(events.column_names)}",
                hint="name them with --type-column and --time-column",
            )
    kinds = [str(kind) for kind in events[type_column].to_pylist()]
    lanes = list(dict.fromkeys(kinds))
    labels = bound_to(query, events, type_column, time_column)
    keys = partition_attributes(parse(query))
    times = _shown_times(events[time_column].to_pylist())
    lines = [part for line in query.rstrip().splitlines() for part in _wrapped(line)]
    height = _TOP + _LANE * len(lanes) + 20 + _LINE * len(lines)
    width = max(_LEFT + _STEP * events.num_rows, _LEFT + 8 * max(map(len, lines)))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' {_STYLE}>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
    ]
    for number, lane in enumerate(lanes):
        y = _TOP + _LANE * number + 14
        parts.append(_text(8, y + 4, _cut(lane), _TEXT, "start"))
        parts.append(f"<line x1='{_LEFT - 16}' y1='{y}' x2='{width - 12}' y2='{y}' stroke='#e2e2e2'/>")
    points = [
        (_LEFT + _STEP * at + _STEP // 2 - 16, _TOP + _LANE * lanes.index(kind) + 14) for at, kind in enumerate(kinds)
    ]
    bound = [points[at] for at in sorted(labels)]
    # Along the lane and then down: each event has an x of its own, so no label lies under the line.
    corners = [bound[0], *(p for (_, y), point in pairwise(bound) for p in ((point[0], y), point))]
    path = " ".join(f"{x},{y}" for x, y in corners)
    parts.append(f"<polyline points='{path}' fill='none' stroke='{_BOUND}' stroke-width='2'/>")
    for at, (x, y) in enumerate(points):
        row = {name: events[name][at].as_py() for name in events.column_names}
        colour = _BOUND if at in labels else _PLAIN
        parts.append(f"<circle cx='{x}' cy='{y}' r='{_RADIUS}' fill='{colour}'/>")
        if at in labels:
            parts.append(_text(x + 9, y - 8, labels[at], _BOUND, "start"))
        parts.append(_text(x, y + 20, ", ".join(str(row[key]) for key in keys), _TEXT))
        parts.append(_text(x, y + 34, times[at], "#777777"))
    for number, line in enumerate(lines):
        parts.append(_text(8, _TOP + _LANE * len(lanes) + 24 + _LINE * number, line, _TEXT, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _wrapped(line: str) -> list[str]:
    if len(line) <= _QUERY:
        return [line]
    return textwrap.wrap(line, _QUERY, subsequent_indent="    ", drop_whitespace=False, break_on_hyphens=False)


def bound_to(query: str, events: pa.Table, type_column: str, time_column: str) -> Mapping[int, str]:
    """The positions of the events of the first match, and the name of each."""
    found = cepheid.match(query, events, output="positions", type_column=type_column, time_column=time_column)
    matches: list[dict[str, Any]] = found.to_pylist()
    if not matches:
        raise CepheidError("the query has no match to draw")
    first = min(matches, key=lambda match: min(min(p) if isinstance(p, list) else p for p in match.values()))
    names: dict[int, str] = {}
    for var, position in first.items():
        if isinstance(position, list):
            names.update({at: f"{var}[{number}]" for number, at in enumerate(position, 1)})
        else:
            names[position] = var
    return names


def _shown_times(times: list[Any]) -> list[str]:
    """The time of day, or the day if there are several. Numbers and texts are shown as they are."""
    if not all(isinstance(time, datetime) for time in times):
        return list(map(str, times))
    clock = "%H:%M:%S" if times[0].date() == times[-1].date() else "%b %d"
    return [f"{time:{clock}}" for time in times]


def _text(x: int, y: int, text: str, colour: str, anchor: str = "middle") -> str:
    content = escape(text).replace("  ", "&#160; ")
    halo = "paint-order='stroke' stroke='white' stroke-width='4'"
    return f"<text x='{x}' y='{y}' fill='{colour}' text-anchor='{anchor}' {halo}>{content}</text>"


def cookbook_pictures() -> dict[Path, str]:
    """The picture of each recipe: its first query without RETURN and summary clauses."""
    found = {}
    for data in sorted((COOKBOOK / "data").glob("*.csv")):
        query = _FIRST_QUERY.search((COOKBOOK / f"{data.stem}.md").read_text())
        assert query is not None, data
        pattern = re.sub(r"^(?:RETURN|OUTPUT|LIMIT).*\n?", "", query[1], flags=re.MULTILINE)
        found[COOKBOOK / "pictures" / f"{data.stem}.svg"] = picture(pattern, pacsv.read_csv(data))
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--cookbook"]:
        for path, svg in cookbook_pictures().items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(svg)
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("query_file", type=Path)
        parser.add_argument("events")
        parser.add_argument("--type-column", default="type")
        parser.add_argument("--time-column", default="ts")
        given = parser.parse_args()
        try:
            table = pacsv.read_csv(given.events)
            print(picture(given.query_file.read_text(), table, given.type_column, given.time_column), end="")
        except CepheidError as error:
            sys.exit(str(error))
