"""The components of a SASE or SASE+ pattern: grammar, builder, and printer.

A component without a variable is called by its type (or ANY), so that predicates can name it; of two
components that would have the same name, the second is called `Name_2`. It prints without a variable again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from cepheid.errors import SyntaxProblem
from cepheid.expr import name_text, type_name_text
from cepheid.lang.expressions import HYPHEN, MAX_HYPHENS, ExpressionBuilder, span_of
from cepheid.lang.literals import number
from cepheid.lang.text import skeleton
from cepheid.pattern import EventClass, Kleene, Neg, Pattern, Seq

CLAUSES = ("WHERE", "WITHIN", "RETURN", "OUTPUT", "LIMIT")

GRAMMAR = r"""
sequence: component ("," component)*
?component: positive | absent
absent: NEGATION positive
    | NEGATION "(" positive ")"
_types: TYPE
    | _ANY "(" TYPE ("," TYPE)* ")"
NEGATION: /!|~|¬|not\b/i
_ANY.5: /any(?=\s*\()/i
_SEQ.5: /seq(?=\s*\()/i
"""
WORDS = {"NEGATION": "a negation such as !(Type x)", "_ANY": "`ANY(...)`", "_SEQ": "`SEQ(...)`"}


@v_args(meta=True)
class ComponentBuilder(ExpressionBuilder):
    def sequence(self, meta: Meta, items: list[Any]) -> Pattern:
        named = with_names(items)
        return named[0] if len(named) == 1 else Seq(tuple(named), span=span_of(meta))

    def absent(self, meta: Meta, items: list[Any]) -> Pattern:
        if not isinstance(items[1], EventClass):
            raise SyntaxProblem(
                "a closure cannot be negated", span=span_of(meta), expected="one event type, or ANY of several"
            )
        return Neg(items[1], span=span_of(meta))

    def positive(self, meta: Meta, items: list[Any]) -> Pattern:
        types = tuple(str(item) for item in items if isinstance(item, Token) and item.type == "TYPE")
        name = next((item for item in items if isinstance(item, Token) and item.type == "NAME"), None)
        return EventClass("" if name is None else str(name), types, span=span_of(meta))


# --- names ------------------------------------------------------------------------------------------------------------


def with_names(components: Sequence[Pattern]) -> list[Pattern]:
    """The components with a variable for each that was written without one (which has the empty name)."""
    classes = [_class_of(component) for component in components]
    names = assigned([event_class if event_class.var else None for event_class in classes], classes)
    return [_renamed(component, name) for component, name in zip(components, names, strict=True)]


def assigned(explicit: Sequence[EventClass | None], classes: Sequence[EventClass]) -> list[str]:
    """The variable of each component: the explicit one, or one after its type that nothing else has."""
    taken = {event_class.var for event_class in explicit if event_class is not None}
    counts: dict[str, int] = {}
    names = []
    for named, event_class in zip(explicit, classes, strict=True):
        if named is not None:
            names.append(named.var)
            continue
        base = default_name(event_class)
        name, count = base, counts.get(base, 1)
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        counts[base] = count
        taken.add(name)
        names.append(name)
    return names


def default_name(event_class: EventClass) -> str:
    return event_class.types[0] if len(event_class.types) == 1 else "ANY"


def _class_of(component: Pattern) -> EventClass:
    while isinstance(component, Neg | Kleene):
        component = component.item
    assert isinstance(component, EventClass)
    return component


def _renamed(component: Pattern, name: str) -> Pattern:
    match component:
        case EventClass():
            return component if component.var == name else replace(component, var=name)
        case Kleene():
            return replace(component, item=replace(component.item, var=name))
        case Neg():
            return replace(component, item=_renamed(component.item, name))
        case _:
            raise TypeError(f"not a component: {type(component).__name__}")


def mark_hyphens(text: str) -> str:
    """The text with a substitute for hyphens in the names of the pattern's types, which would parse as subtractions in
    a clause. Offsets stay the same."""
    code = skeleton(text)
    clause = _CLAUSE.search(code)
    if clause is None:
        return text
    declared = set(_HYPHENATED.findall(code, 0, clause.start()))
    if not declared:
        return text
    parts, at = [text[: clause.start()]], clause.start()
    for run in _HYPHENATED.finditer(code, at):
        parts += text[at : run.start()], _marked(run.group(), declared)
        at = run.end()
    return "".join(parts) + text[at:]


def _marked(run: str, declared: Collection[str]) -> str:
    """`id-SHELF-READING_2` with the hyphens marked that belong to a declared name, of which longer ones go first."""
    words = run.split("-")
    marked, at = "", 0
    while at < len(words):
        length = next(
            (n for n in range(MAX_HYPHENS + 1, 1, -1) if _without_count("-".join(words[at : at + n])) in declared), 1
        )
        marked += ("-" if at else "") + HYPHEN.join(words[at : at + length])
        at += length
    return marked


def _without_count(name: str) -> str:
    return re.sub(r"_\d+\Z", "", name)


_CLAUSE = re.compile(rf"(?<![\w-])(?:{'|'.join(CLAUSES)})(?![\w-])", re.IGNORECASE)
_HYPHENATED = re.compile(r"(?<!\w)[^\W\d]\w*(?:-\w+)++")


# --- printer ----------------------------------------------------------------------------------------------------------


def pattern_text(pattern: Pattern) -> str:
    components = pattern.items if isinstance(pattern, Seq) else (pattern,)
    implicit = _implicit(components)
    texts = [_component_text(c, _class_of(c).var in implicit) for c in components]
    return f"SEQ({', '.join(texts)})" if isinstance(pattern, Seq) else texts[0]


def _implicit(components: Collection[Pattern]) -> set[str]:
    """The variables that need not be written, because their components would be called so anyway."""
    classes = [_class_of(component) for component in components]
    written = [None if re.fullmatch(re.escape(default_name(c)) + r"(_\d+)?", c.var) else c for c in classes]
    while True:
        names = assigned(written, classes)
        wrong = [i for i, c in enumerate(classes) if names[i] != c.var]
        if not wrong:
            return {c.var for c, explicit in zip(classes, written, strict=True) if explicit is None}
        for i in wrong:
            written[i] = classes[i]


def _component_text(component: Pattern, is_implicit: bool) -> str:
    match component:
        case Neg():
            return f"!({_component_text(component.item, is_implicit)})"
        case Kleene():
            types, var = _types_text(component.item), component.item.var
            return types + quantifier(component) + ("" if is_implicit else f" {name_text(var)}[]")
        case EventClass():
            return _types_text(component) + ("" if is_implicit else f" {name_text(component.var)}")
        case _:
            raise TypeError(f"not a component: {type(component).__name__}")


def _types_text(event_class: EventClass) -> str:
    types = [type_name_text(name) for name in event_class.types]
    return types[0] if len(types) == 1 else f"ANY({', '.join(types)})"


def quantifier(closure: Kleene, exactly: str = "{%d}") -> str:
    """`+`, `*`, `{2,}` or `{2,4}`; a single count is written in the format `exactly`."""
    match closure.low, closure.high:
        case (1, None):
            return "+"
        case (0, None):
            return "*"
        case (low, None):
            return f"{{{low},}}"
        case (low, high):
            return exactly % low if low == high else f"{{{low},{high}}}"


def bounds(quantifier: Token) -> tuple[int, int | None]:
    """The bounds of `+`, `*`, `{3}`, `{2,4}` or `{2,}`."""
    text = re.sub(r"\s", "", quantifier)
    if text in ("+", "*"):
        return (1 if text == "+" else 0), None
    low, comma, high = text[1:-1].partition(",")

    def count(digits: str) -> int:
        return int(number(Token("NUMBER", digits, quantifier.start_pos, end_pos=quantifier.end_pos)))

    return count(low), count(high) if high else None if comma else count(low)
