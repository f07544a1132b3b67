"""The content of a value as text, and its hash. Checkpoints hold such hashes as names, so they outlive a release.

A field that holds its default is left out: a class that gains a field with a default keeps the names of its values. So
does a class that changes from a dataclass to a named tuple. Fields without a part in the equality do not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any


def content_hash(*values: Any, size: int = 8) -> bytes:
    return hashlib.blake2b(content(values).encode("utf-8", "surrogatepass"), digest_size=size).digest()


def content(value: Any) -> str:
    match value:
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case None | bool() | int() | float() | str() | bytes() | date() | time() | timedelta() | Decimal() | Fraction():
            return repr(value)
        case type():
            return value.__name__
        case tuple() if hasattr(value, "_fields"):
            defaults = getattr(value, "_field_defaults", {})
            return _members(value, [(name, defaults.get(name, MISSING)) for name in value._fields])
        case tuple() | list():
            return f"({', '.join(map(content, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(content, value)))}}}"
        case Mapping():
            return f"{{{', '.join(f'{content(key)}: {content(item)}' for key, item in value.items())}}}"
        case _ if is_dataclass(value):
            params = getattr(type(value), "__dataclass_params__")  # noqa: B009
            if not params.eq:  # it has an equality of its own
                return repr(value)
            return _members(value, [(f.name, f.default) for f in fields(value) if f.compare])
        case _:
            raise TypeError(f"no content of a {type(value).__name__}")


def _members(value: Any, defaults: list[tuple[str, Any]]) -> str:
    shown = []
    for name, default in defaults:
        member = getattr(value, name)
        if default is MISSING or type(member) is not type(default) or member != default:
            shown.append(f"{name}={content(member)}")
    return f"{type(value).__name__}({', '.join(shown)})"
