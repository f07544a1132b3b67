"""The names of types in the stream declarations of EQL and CED, and the error for a name that no stream has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lark import Token

from cepheid.errors import NameProblem, Span, did_you_mean, listing
from cepheid.lang.expressions import span_of
from cepheid.types import BOOLEAN, FLOAT, INTEGER, RECORD, STRING, UNKNOWN, Type, list_of

_TYPES: Mapping[str, Type] = {
    **dict.fromkeys(("int", "integer", "long", "short"), INTEGER),
    **dict.fromkeys(("number", "double", "float", "real", "decimal"), FLOAT),
    **dict.fromkeys(("string", "text", "varchar", "char"), STRING),
    **dict.fromkeys(("boolean", "bool"), BOOLEAN),
    **dict.fromkeys(("list", "vector"), list_of()),
    "record": RECORD,
    # Inputs hold times as numbers or as timestamps, so an expression may meet either.
    **dict.fromkeys(("any", "timestamp", "date", "time"), UNKNOWN),
}
_TEXTS: Mapping[Type, str] = {kind: word for word, kind in reversed(list(_TYPES.items()))}


def type_named(word: Token) -> Type:
    """The type of this name, in upper or lower case."""
    found = _TYPES.get(word.lower())
    if found is None:
        raise NameProblem(
            f"unknown type `{word}`",
            span=span_of(word),
            expected="int, long, double, float, number, string, bool, timestamp, list or any",
            hint=did_you_mean(word, _TYPES),
        )
    return found


def type_text(kind: Type) -> str:
    return _TEXTS.get(kind, "number" if kind.is_number else "any")


def unknown_stream(name: str, span: Span | None, declared: Collection[str]) -> NameProblem:
    return NameProblem(
        f"unknown event type `{name}`",
        span=span,
        expected=f"one that is declared: {listing(declared)}",
        hint=did_you_mean(name, declared) or "declare it before it is used",
    )
