"""Query text before it is parsed: limits against hostile text, and the text without strings and comments.

Each function is one linear scan, so that no text costs more than its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cepheid.errors import Span, SyntaxProblem, shown

MAX_TEXT = 1_000_000
MAX_CODE = 200_000
MAX_TOKENS = 20_000
MAX_NESTING = 100

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000]")
_MARK = re.compile(r"['\"‘“`]|/\*|--|//|[()\[\]{}]")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CLOSING_QUOTE = {"'": "'", '"': '"', "‘": "’", "“": "”", "`": "`"}
_DOUBLED = "'\"`"
_OPENING = "([{"


class _Piece(NamedTuple):
    """A bracket, or a stretch of text that is not code: a string with its quotes, or a comment."""

    start: int
    end: int
    is_comment: bool = False
    is_bracket: bool = False


def check_text(text: str) -> None:
    """Refuse text that is too long, too deeply nested, has characters no query has, or leaves a string open."""
    if len(text) > MAX_TEXT:
        raise SyntaxProblem(f"the text has {len(text):,} characters", expected=f"at most {MAX_TEXT:,} characters")
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        at = forbidden.start()
        raise SyntaxProblem(
            f"a query cannot hold the character U+{ord(text[at]):04X}", span=Span(at, at + 1), expected="printable text"
        )
    code, depth, aside = len(text), 0, 0
    for piece in _pieces(text):
        if not piece.is_bracket:
            code -= piece.end - piece.start
            aside += 1
            if aside > MAX_TOKENS:
                what = f"the query has more than {MAX_TOKENS:,} strings and comments"
                raise SyntaxProblem(what, span=Span(piece.start, piece.end), expected=f"at most {MAX_TOKENS:,}")
        elif text[piece.start] in _OPENING:
            depth += 1
            if depth > MAX_NESTING:
                raise SyntaxProblem(
                    f"brackets are nested more than {MAX_NESTING} deep",
                    span=Span(piece.start, piece.end),
                    expected=f"at most {MAX_NESTING} brackets inside one another",
                )
        else:
            depth = max(0, depth - 1)
    if code > MAX_CODE:
        raise SyntaxProblem(
            f"the query has {code:,} characters outside strings and comments",
            expected=f"at most {MAX_CODE:,} characters",
        )
    tokens = len(_TOKEN.findall(skeleton(text)))
    if tokens > MAX_TOKENS:
        raise SyntaxProblem(f"the query has {tokens:,} tokens", expected=f"at most {MAX_TOKENS:,}")


def skeleton(text: str) -> str:
    """The text with comments and the content of strings replaced by blanks, so that offsets stay the same."""
    parts: list[str] = []
    at = 0
    for piece in _pieces(text):
        if piece.is_bracket:
            continue
        parts.append(text[at : piece.start])
        length = piece.end - piece.start
        parts.append(" " * length if piece.is_comment else text[piece.start] + " " * (length - 2) + text[piece.end - 1])
        at = piece.end
    parts.append(text[at:])
    return "".join(parts)


def unquote(literal: str) -> str:
    """The value of a string literal, or the name in backticks. Inside, a straight quote or a backtick is doubled."""
    quote, inside = literal[0], literal[1:-1]
    return inside.replace(quote * 2, quote) if quote in _DOUBLED else inside


def _pieces(text: str) -> list[_Piece]:
    pieces = []
    at = 0
    while mark := _MARK.search(text, at):
        start, sign = mark.start(), mark.group()
        if sign in _CLOSING_QUOTE:
            at = _end_of_string(text, start)
            pieces.append(_Piece(start, at))
        elif sign == "/*":
            close = text.find("*/", start + 2)
            if close < 0:
                raise SyntaxProblem(
                    "a comment is opened and never closed", span=Span(start, start + 2), expected="`*/` after it"
                )
            at = close + 2
            pieces.append(_Piece(start, at, is_comment=True))
        elif sign in ("--", "//"):
            newline = text.find("\n", start)
            at = len(text) if newline < 0 else newline
            pieces.append(_Piece(start, at, is_comment=True))
        else:
            at = start + 1
            pieces.append(_Piece(start, at, is_bracket=True))
    return pieces


def _end_of_string(text: str, start: int) -> int:
    quote = text[start]
    closing = _CLOSING_QUOTE[quote]
    at = start + 1
    while True:
        close = text.find(closing, at)
        if close < 0:
            line = shown(text[start:].split("\n", 1)[0])
            what = "a quoted name" if quote == "`" else "a string"
            raise SyntaxProblem(
                f"{what} is opened and never closed: {line}",
                span=Span(start, start + 1),
                expected=f"a closing {closing}",
                hint=f"write a quote inside of a string twice: {quote}it{quote * 2}s{quote}"
                if quote in "'\"" and quote in text[:start]
                else _closed(quote, text[start + 1 :]),
            )
        if quote in _DOUBLED and text.startswith(closing, close + 1):
            at = close + 2
            continue
        return close + 1


_BEHIND = re.compile(r"\s+(?:AND|OR|WITHIN|RETURN|WHERE|LIMIT|OUTPUT)\b|\s*[])},;<>=]|\s*$", re.IGNORECASE)


def _closed(quote: str, rest: str) -> str:
    """The text as it was probably meant: up to the next clause, sign or end."""
    end = _BEHIND.search(rest)
    return f"close it where it ends: {quote}{shown(rest[: end.start() if end else None])}{_CLOSING_QUOTE[quote]}"
