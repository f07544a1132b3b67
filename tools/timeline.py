"""Draws the first match of a query on a time line of its events, as SVG.

python tools/timeline.py QUERY_FILE EVENTS.csv > picture.svg     one picture
python tools/timeline.py --cookbook                              the pictures of docs/cookbook
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

import cepheid
from cepheid.lang import DIALECTS, parse
from cepheid.pattern import partition_attributes

COOKBOOK = Path(__file__).parent.parent / "docs" / "cookbook"
_LANGUAGES = "|".join(re.escape(dialect.name) for dialect in DIALECTS)
_FIRST_QUERY = re.compile(rf"^```(?:{_LANGUAGES})\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LEFT, _STEP, _TOP, _LANE, _RADIUS, _LINE = 130, 84, 26, 62, 7, 18
_STYLE = "font-family='ui-monospace, monospace' font-size='12'"
_PLAIN, _BOUND, _TEXT = "#b8b8b8", "#c2410c", "#333333"


def picture(query: str, events: pa.Table) -> str:
    """The query, its events in a lane for each type, and the events of the first match, joined and named."""
    lanes = list(dict.fromkeys(events["type"].to_pylist()))
    labels = bound_to(query, events)
    keys = partition_attributes(parse(query))
    clock = "%H:%M:%S" if _within_a_day(events) else "%b %d"
    lines = query.rstrip().splitlines()
    height = _TOP + _LANE * len(lanes) + 20 + _LINE * len(lines)
    width = max(_LEFT + _STEP * events.num_rows, _LEFT + 8 * max(map(len, lines)))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' {_STYLE}>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
    ]
    for number, lane in enumerate(lanes):
        y = _TOP + _LANE * number + 14
        parts.append(_text(8, y + 4, lane, _TEXT, "start"))
        parts.append(f"<line x1='{_LEFT - 16}' y1='{y}' x2='{width - 12}' y2='{y}' stroke='#e2e2e2'/>")
    points = [
        (_LEFT + _STEP * at + _STEP // 2 - 16, _TOP + _LANE * lanes.index(kind) + 14)
        for at, kind in enumerate(events["type"].to_pylist())
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
        parts.append(_text(x, y + 34, f"{row['ts']:{clock}}", "#777777"))
    for number, line in enumerate(lines):
        parts.append(_text(8, _TOP + _LANE * len(lanes) + 24 + _LINE * number, line, _TEXT, "start"))
    return "\n".join([*parts, "</svg>", ""])


def bound_to(query: str, events: pa.Table) -> Mapping[int, str]:
    """The positions of the events of the first match, and the name of each."""
    matches: list[dict[str, Any]] = cepheid.match(query, events, output="positions").to_pylist()
    first = min(matches, key=lambda match: min(min(p) if isinstance(p, list) else p for p in match.values()))
    names: dict[int, str] = {}
    for var, position in first.items():
        if isinstance(position, list):
            names.update({at: f"{var}[{number}]" for number, at in enumerate(position, 1)})
        else:
            names[position] = var
    return names


def _within_a_day(events: pa.Table) -> bool:
    times = events["ts"].to_pylist()
    return bool(times[0].date() == times[-1].date())


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
    elif len(sys.argv) == 3:
        print(picture(Path(sys.argv[1]).read_text(), pacsv.read_csv(sys.argv[2])), end="")
    else:
        sys.exit(__doc__)
