"""The zone of times without an offset, and what to write for a name that is none."""

from __future__ import annotations

import re
from datetime import UTC
from zoneinfo import ZoneInfo, available_timezones

from cepheid.errors import InputProblem, did_you_mean, shown

EXPECTED = "a name of the IANA database, such as Europe/Berlin, America/New_York or UTC"
_OFFSET = re.compile(
    r"(?:UTC|GMT|Z)?\s*(?P<sign>[+\u2212-])\s*(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?", re.IGNORECASE
)
_PLACES = {
    "Europe/London": ("BST",),
    "Europe/Lisbon": ("WEST",),
    "Europe/Berlin": ("CEST", "MEZ", "MESZ"),
    "Europe/Athens": ("EEST",),
    "Europe/Moscow": ("MSK",),
    "Africa/Johannesburg": ("SAST",),
    "Africa/Nairobi": ("EAT",),
    "Asia/Karachi": ("PKT",),
    "Asia/Kolkata": ("IST",),
    "Asia/Shanghai": ("CST",),
    "Asia/Hong_Kong": ("HKT",),
    "Asia/Singapore": ("SGT",),
    "Asia/Tokyo": ("JST",),
    "Asia/Seoul": ("KST",),
    "Australia/Perth": ("AWST",),
    "Australia/Brisbane": ("AEST",),
    "Australia/Sydney": ("AEST", "AEDT"),
    "Pacific/Auckland": ("NZST", "NZDT"),
    "America/St_Johns": ("NST", "NDT"),
    "America/Halifax": ("AST", "ADT"),
    "America/New_York": ("ET", "EDT", "EASTERN"),
    "America/Chicago": ("CT", "CST", "CDT", "CENTRAL"),
    "America/Denver": ("MT", "MDT", "MOUNTAIN"),
    "America/Los_Angeles": ("PT", "PST", "PDT", "PACIFIC"),
    "America/Anchorage": ("AKST", "AKDT"),
    "America/Sao_Paulo": ("BRT",),
    "Asia/Jerusalem": ("IST", "IDT"),
    "Europe/Dublin": ("IST",),
}
"""The places of abbreviations that are no names of the database."""
_ABBREVIATION = re.compile(r"[A-Za-z]{2,5}")
_AREAS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")


def require_zone(name: str, format: str | None) -> None:
    """Refuses a name that is no zone, and a zone beside a format of times in UTC."""
    if not isinstance(name, str):
        written = "UTC" if name is UTC else getattr(name, "key", None) or "Europe/Berlin"
        raise InputProblem(f"the zone is a {type(name).__name__}", expected=EXPECTED, hint=f'write zone="{written}"')
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # such as `../x`, a directory, an unknown name
        raise InputProblem(
            f"`{shown(name)}` is not a zone of time", expected=EXPECTED, hint=_meant(name.strip())
        ) from None
    if format is not None and name != "UTC" and re.search(r"(?:UTC|GMT|Z)$", format.replace("%Z", "")):
        raise InputProblem(
            f"the format of times `{shown(format)}` is in UTC, so their zone cannot be `{shown(name)}`",
            hint="leave the zone out, or declare zone=UTC for this input",
        )


def _meant(name: str) -> str | None:
    """The zone of a misspelt name, an abbreviation or an offset. A zone with a fixed offset is proposed only where the
    name gives this offset."""
    names = available_timezones()
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return _fixed(offset["sign"] == "+", int(offset["hours"]), int(offset["minutes"] or 0), names)
    same = next((one for one in sorted(names) if one.casefold() == name.casefold()), None)
    if same is not None:
        return f"did you mean `{same}`?"
    places = [place for place, words in _PLACES.items() if name.upper() in words]
    if places:
        return f"name the place whose clocks show `{name}`, such as {_any(places)}"
    of_places = sorted(one for one in names if one.partition("/")[0] in _AREAS)
    word = name.casefold().replace(" ", "_")
    near = [one for one in of_places if one.casefold().rpartition("/")[2] == word]
    if near:
        return f"did you mean {_any(near[:3])}?"
    if _ABBREVIATION.fullmatch(name) and name.isupper():
        return None
    if "/" in name:
        return did_you_mean(name, of_places)
    cities = {one.rpartition("/")[2]: one for one in of_places}
    found = did_you_mean(name.replace(" ", "_"), cities, _ALIKE)
    return found and re.sub("`(.*)`", lambda city: f"`{cities[city[1]]}`", found)


_ALIKE = 0.75


def _any(places: list[str]) -> str:
    return " or ".join(f"`{place}`" for place in places)


def _fixed(is_ahead: bool, hours: int, minutes: int, names: set[str]) -> str:
    """The names of fixed offsets have the sign of POSIX: Etc/GMT-2 is two hours ahead of UTC."""
    place = "where clocks change, name the place, such as Europe/Berlin"
    if not hours and not minutes:
        return "did you mean `UTC`?"
    zone = f"Etc/GMT{'-' if is_ahead else '+'}{hours}"
    if minutes or zone not in names:
        return "name the place whose clocks have this offset, such as Asia/Kolkata for +05:30"
    return f"`{zone}` is {'+' if is_ahead else '-'}{hours:02}:00 all year (its sign is the reverse); {place}"
