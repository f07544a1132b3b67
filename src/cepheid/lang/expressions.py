r"""The expressions of all languages: a fragment of a Lark grammar, and the builder of `expr` nodes.

A language's grammar is its own rules plus `expression_grammar(...)`; its builder inherits from `ExpressionBuilder`. The
rules it uses are `condition` (an expression whose depth is checked), `duration`, `columns` and `row_limit`; the
terminals NAME (a word that is not reserved), WORD (any word), TYPE (a word that may hold hyphens), NUMBER and STRING.
The builder returns raw expressions: a language passes each through `resolve` once it knows its pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from cepheid.errors import Span, SyntaxProblem, shown
from cepheid.events import CALENDAR_WORDS, OWN_UNIT, UNIT_WORDS, Duration
from cepheid.expr import (
    AGGREGATES,
    CASE,
    Aggregate,
    And,
    Arithmetic,
    At,
    Attr,
    Call,
    Compare,
    Const,
    Contains,
    Expr,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    Over,
    Param,
    Same,
    Vector,
    children,
    replaced,
    to_text,
    variables,
)
from cepheid.functions import ALIASES, FUNCTIONS
from cepheid.lang.indexes import member_name, position_of
from cepheid.lang.indexes import span_of as span_of
from cepheid.lang.literals import (
    amount_of,
    cast_call,
    duration_literal,
    moment_literal,
    number,
    refuse_bare_date,
    unit_of,
)
from cepheid.lang.parsed_nodes import EqualChain, Group, Length, ParsedColumn, aggregate
from cepheid.lang.text import unquote
from cepheid.pattern import Pattern

MAX_DEPTH = 200
Node = TypeVar("Node", Expr, Pattern)
MAX_CHAIN = 100
MAX_HYPHENS = 8
HYPHEN = "\ue000"
"""Stands for the hyphen of a type's name where a language lets an expression refer to the type by that name."""

EXPRESSION_WORDS = ("AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "IN", "LIKE", "CONTAINS")
_VALUE_WORDS = ("NULL", "TRUE", "FALSE")
_NO_OPERANDS = ("BETWEEN", "WHEN", "THEN", "ELSE", "END")
QUOTED = r"`(?:[^`\n]|``)++`"
"""A name in backticks, for grammars."""

_GRAMMAR = r"""
condition: expr

?expr: conjunction
    | conjunction (_OR conjunction)+ -> disjunction
?conjunction: negation
    | negation (_AND negation)+ -> conjunction_of
?negation: comparison
    | _NOT negation -> not_
?comparison: sum
    | sum (COMPARE sum)+ -> compared
    | sum _IS _NULL -> is_null
    | sum _IS _NOT _NULL -> is_not_null
    | sum _CONTAINS sum -> contains
    | sum _LIKE sum -> like
    | sum _NOT _LIKE sum -> not_like
    | sum _BETWEEN sum _AND sum -> in_range
    | sum _NOT _BETWEEN sum _AND sum -> not_in_range
    | sum _IN "(" _arguments ")" -> within_list
    | sum _NOT _IN "(" _arguments ")" -> not_within_list
?sum: product
    | sum (PLUS | MINUS) product -> arithmetic
?product: signed
    | product (STAR | SLASH | MODULO) signed -> arithmetic
?signed: atom
    | MINUS signed -> negative
?atom: "(" expr ")"
    | NUMBER -> number
    | NUMBER _PERCENT -> percent
    | NUMBER UNIT -> length_of_time
    | _INTERVAL (STRING | NUMBER) UNIT -> length_of_time
    | MOMENT STRING -> moment
    | _CASE [expr] when+ [_ELSE expr] _END -> case_
    | _CAST "(" expr _AS WORD ["(" NUMBER ["," NUMBER] ")"] ")" -> cast
    | NAME "(" NAME _FROM expr ")" -> extract
    | STRING -> string
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | NAME -> bare
    | NAME _PERCENT -> bare_percent
    | NAME ("." WORD)+ -> attribute
    | NAME INDEX ("." WORD)* -> indexed
    | NAME ("." WORD)+ INDEX ("." WORD)+ -> member
    | NAME INDEX ("." WORD)+ INDEX ("." WORD)+ -> member_of_indexed
    | NAME "(" [_arguments] ")" -> call
    | NAME ("." WORD)+ "(" [_arguments] ")" -> dotted_call
    | NAME "(" STAR ")" -> count_all
    %(atoms)s
_arguments: expr ("," expr)*
when: _WHEN expr _THEN expr

duration: NUMBER [UNIT]
    | NAME [UNIT]
    | _INTERVAL (STRING | NUMBER) UNIT
columns: column ("," column)*
column: expr [_AS (WORD | STRING)]
row_limit: NUMBER

COMPARE.4: /==|=|!=|<>|<=|>=|<|>|≠|≤|≥|\\neq?(?![a-z])|\\leq?(?![a-z])|\\geq?(?![a-z])|\^neq\b/i
_AND.3: /and\b|&&|∧|\\wedge|\\land%(caret)s/i
_OR.3: /or\b|\|\||∨|\\vee|\\lor/i
_NOT.3: /not\b|¬|\\neg(?![a-z])|\\lnot/i
_IS.3: /is\b/i
_NULL.3: /null\b/i
_TRUE.3: /true\b/i
_FALSE.3: /false\b/i
_IN.3: /in\b/i
_LIKE.3: /like\b/i
_CONTAINS.3: /contains\b/i
_BETWEEN.3: /between\b/i
_CASE.3: /case(?=\s+[^\s.=<>!≠≤≥,)+*\/%%]|\s*\()/i
_WHEN.3: /when\b/i
_THEN.3: /then\b/i
_ELSE.3: /else\b/i
_END.3: /end\b/i
_CAST.3: /cast(?=\s*\()/i
_INTERVAL.3: /interval(?=\s*['"‘“\d])/i
MOMENT.3: /(?:timestamp|date)(?=\s*['"‘“])/i
_AS.3: /as\b/i
PLUS: "+"
MINUS: /[-−]/
STAR: "*"
SLASH: "/"
MODULO: "%%"
_PERCENT.4: /%%(?!(?:\s|\$)*(?:(?!(?:%(no_operand)s)\b)[\w'"‘“`(\[]|\.\d|(?<=\s)[-−]\S))/i
INDEX: /\[[^\[\]'"]{0,100}\]/
NUMBER: /(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?/i
STRING: /'(?:[^']|'')*+'|"(?:[^"]|"")*+"|‘[^’]*’|“[^”]*”/
UNIT.2: /(?:%(units)s)\b/i
NAME: /(?!(?:%(reserved)s)(?![\w\ue000]))[^\W\d][\w\ue000]*|%(quoted)s/i
WORD: /[^\W\d]\w*|%(quoted)s/
TYPE: /(?!(?:%(reserved)s)(?!\w|-\w))[^\W\d]\w*(?:-\w+){0,%(hyphens)d}|%(quoted)s/i
COMMENT.9: /\/\*(?:[^*]|\*(?!\/))*+\*\/|--[^\n]*|\/\/[^\n]*/
BLANK: /(?:\s|\$%(spacing)s)+/
%%ignore COMMENT
%%ignore BLANK
"""

_EQUIVALENCE = """| "[" same ("," same)* "]" -> equivalence"""
_EQUIVALENCE_RULE = """
same: WORD ("." WORD)* [COMPARE sum]
"""
_VECTOR = """| "[" _arguments "]" -> vector"""


def expression_grammar(
    *,
    reserved: Collection[str] = (),
    caret_is_and: bool = False,
    equivalence: bool = False,
    vectors: bool = False,
    backslash_spaces: bool = True,
    atoms: str = "",
) -> str:
    """The shared fragment. `reserved` are the language's own words that cannot be names of variables and types;
    `backslash_spaces` takes TeX's `\\ ` for a blank, where the backslash is no operator; `atoms` are further
    alternatives (each starting with `|`) for an operand."""
    alternatives = [atoms, _EQUIVALENCE if equivalence else "", _VECTOR if vectors else ""]
    fragment = _GRAMMAR % {
        "atoms": "\n    ".join(part for part in alternatives if part),
        "spacing": r"|\\[ ,;!]" if backslash_spaces else "",
        "caret": r"|\^(?!neq\b)" if caret_is_and else "",
        "reserved": "|".join(word.lower() for word in (*EXPRESSION_WORDS, *reserved)),
        "no_operand": "|".join(
            word.lower() for word in (*EXPRESSION_WORDS, *_NO_OPERANDS, *reserved) if word not in _VALUE_WORDS
        ),
        "quoted": QUOTED,
        "hyphens": MAX_HYPHENS,
        "units": "|".join(sorted((*UNIT_WORDS, *CALENDAR_WORDS), key=len, reverse=True)),
    }
    from_ = "" if "FROM" in reserved else keywords("FROM")
    return fragment + from_ + (_EQUIVALENCE_RULE if equivalence else "")


def keywords(*words: str) -> str:
    """A terminal for each word, in any case, named `_WORD`: a parser leaves it out of the tree."""
    return "\n".join(rf"_{word}.3: /{word.lower()}\b/i" for word in words) + "\n"


# --- names and chains ------------------------------------------------------------------------------------------------


def resolve(
    expr: Expr,
    negated: Collection[str] = (),
    bare_name: Callable[[Param], Expr] | None = None,
    single: Collection[str] = (),
) -> Expr:
    """The expression in the algebra: chained equality as pairs (none of two negated variables, by ruling 5), bare names
    resolved by `bare_name`, flat conjunctions and disjunctions. `single` are the variables of one event."""

    def change(node: Expr) -> Expr:
        match node:
            case EqualChain():
                return _pairs(node, negated)
            case Length():
                if node.var in single:
                    return Attr(node.var, node.word, span=node.span)
                return Aggregate("count", node.var, None, span=node.span)
            case Group():
                raise SyntaxProblem(
                    f"`{node.var}{'[..i-1]' if node.over is Over.BEFORE else '[]'}` is several events",
                    span=node.span,
                    expected="an aggregate around it, or one event of the closure",
                    hint=f"in a condition write avg({node.var}[..i-1].x) or {node.var}[i].x; RETURN {node.var} gives "
                    "the list of its events, and output='flat' (--output-shape flat) a list of each attribute",
                )
            case Param() if bare_name is not None:
                return bare_name(node)
            case And() | Or():
                return flat(type(node), node.items, node.span)
            case _:
                return node

    return replaced(expr, (EqualChain, Length, Group, Param, And, Or), change)


def flat(kind: type[And] | type[Or], items: Collection[Expr], span: Span | None) -> Expr:
    """`a AND (b AND c)` is one conjunction of three."""
    parts: list[Expr] = []
    for item in items:
        parts.extend(item.items if isinstance(item, kind) else (item,))
    return kind(tuple(parts), span=span)


def check_depth(tree: Node, children_of: Callable[[Node], Iterable[Node]], what: str) -> None:
    """Refuse a tree so deep that walking it could exhaust the stack."""
    level: list[Node] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children_of(node)]
        if not level:
            return
    raise SyntaxProblem(
        f"the {what} is nested more than {MAX_DEPTH} deep",
        span=tree.span,
        expected=f"at most {MAX_DEPTH} operators inside one another",
    )


def _pairs(chain: EqualChain, negated: Collection[str]) -> Expr:
    pairs = list(combinations(chain.items, 2))
    joined = [pair for pair in pairs if not all(_is_negated(side, negated) for side in pair)]
    return flat(And, [Compare("=", left, right, span=chain.span) for left, right in joined or pairs], chain.span)


def _is_negated(expr: Expr, negated: Collection[str]) -> bool:
    names = variables(expr)
    return bool(names) and names.issubset(negated)


# --- the builder ------------------------------------------------------------------------------------------------------

_SAME_AS = {"==": "=", "<>": "!=", "≠": "!=", "^neq": "!=", "≤": "<=", "≥": ">="}
_SAME_AS |= {"\\ne": "!=", "\\neq": "!=", "\\le": "<=", "\\leq": "<=", "\\ge": ">=", "\\geq": ">="}
_MAX_ROWS = 2**63 - 1


def name_of(token: Token) -> str:
    return str(token).replace(HYPHEN, "-")


def without_backticks(token: Token) -> Token:
    """The token of a name in backticks as the name itself, at the same position."""
    return Token.new_borrow_pos(token.type, unquote(token), token) if token.startswith("`") else token


def is_quoted(token: Token) -> bool:
    """Whether a name was written in backticks, which its position in the text includes."""
    return (token.end_pos or 0) - (token.start_pos or 0) > len(token)


Rule = Callable[[Any, Meta, list[Any]], Any]


def rule_for(build: Callable[..., Any]) -> Rule:
    """A rule that makes a node of its parts."""
    return lambda _, meta, items: build(*items, span=span_of(meta))


def rule_for_all(build: Callable[..., Any]) -> Rule:
    """A rule that makes a node of one tuple, which holds all its parts."""
    return lambda _, meta, items: build(tuple(items), span=span_of(meta))


def all_parts(_: Any, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
    """A rule that lists its parts."""
    return tuple(items)


_METHODS = {"contains": "{} CONTAINS {}", "startswith": "{} LIKE 'a%'", "endswith": "{} LIKE '%a'"}


def _no_method(words: Sequence[str], args: Sequence[Expr], span: Span) -> SyntaxProblem:
    """The error of `a.name.lower()`, or of a name with parentheses: `a.price (EUR)`."""
    *owner, last = words
    inside = ", ".join(map(to_text, args))
    own, name = ".".join(owner), last.lower().replace("_", "")
    if name in _METHODS:
        hint = f"write {_METHODS[name].format(own, inside)}"
    elif last.lower() in FUNCTIONS or last.lower() in AGGREGATES:
        hint = f"functions stand before their values: {last.lower()}({', '.join(filter(None, (own, inside)))})"
    else:
        hint = f"write a name with other characters in backticks: {own}.`{last} ({inside})`"
    return SyntaxProblem(
        f"`{shown('.'.join(words))}(...)` is not a function", span=span, expected="a function of values", hint=hint
    )


@v_args(meta=True)
class ExpressionBuilder(Transformer_NonRecursive[Any, Any]):
    """Builds raw expressions. It holds no state, so one instance serves every parse."""

    not_, is_null, contains = rule_for(Not), rule_for(IsNull), rule_for(Contains)
    true, false, null = (rule_for(partial(Const, value)) for value in (True, False, None))
    conjunction_of, disjunction = (rule_for_all(partial(flat, kind)) for kind in (And, Or))
    vector = rule_for_all(Vector)
    columns = all_parts

    def condition(self, meta: Meta, items: list[Any]) -> Expr:
        check_depth(items[0], children, "expression")
        expr: Expr = items[0]
        return expr

    def compared(self, meta: Meta, items: list[Any]) -> Expr:
        operands = items[::2]
        operators = [_SAME_AS.get(sign.lower(), str(sign)) for sign in items[1::2]]
        if len(operands) == 2:
            return Compare(operators[0], operands[0], operands[1], span=span_of(meta))
        wrong = next((token for token, sign in zip(items[1::2], operators, strict=True) if sign != "="), None)
        if wrong is not None:
            raise SyntaxProblem(
                f"`{wrong}` in a chain of comparisons",
                span=span_of(wrong),
                expected="only `=` in a chain",
                hint="join two comparisons with AND: a < b AND b < c",
            )
        if len(operands) > MAX_CHAIN:
            raise SyntaxProblem(
                f"a chain of {len(operands)} equalities", span=span_of(meta), expected=f"at most {MAX_CHAIN} in a chain"
            )
        return EqualChain(tuple(operands), span=span_of(meta))

    def is_not_null(self, meta: Meta, items: list[Any]) -> Expr:
        return Not(self.is_null(meta, items), span=span_of(meta))

    def like(self, meta: Meta, items: list[Any]) -> Expr:
        if isinstance(items[1], Arithmetic):  # `LIKE a%` is a percentage
            raise SyntaxProblem(
                "a calculation is not a pattern",
                span=items[1].span or span_of(meta),
                expected="a string or an attribute",
                hint="write the pattern in quotes: LIKE 'a%'",
            )
        return Like(items[0], items[1], span=span_of(meta))

    def not_like(self, meta: Meta, items: list[Any]) -> Expr:
        return Not(self.like(meta, items), span=span_of(meta))

    def within_list(self, meta: Meta, items: list[Any]) -> Expr:
        return In(items[0], tuple(items[1:]), span=span_of(meta))

    def not_within_list(self, meta: Meta, items: list[Any]) -> Expr:
        return Not(self.within_list(meta, items), span=span_of(meta))

    def in_range(self, meta: Meta, items: list[Any]) -> Expr:
        item, low, high = items
        bounds = Compare(">=", item, low, span=span_of(meta)), Compare("<=", item, high, span=span_of(meta))
        return And(bounds, span=span_of(meta))

    def not_in_range(self, meta: Meta, items: list[Any]) -> Expr:
        return Not(self.in_range(meta, items), span=span_of(meta))

    def length_of_time(self, meta: Meta, items: list[Any]) -> Expr:
        return duration_literal(amount_of(items[0]), items[1], span_of(meta))

    def moment(self, meta: Meta, items: list[Any]) -> Expr:
        return moment_literal(items[0], items[1], span_of(meta))

    def case_(self, meta: Meta, items: list[Any]) -> Expr:
        subject, *cases, otherwise = items
        args: list[Expr] = []
        for test, value in cases:
            args += [test if subject is None else Compare("=", subject, test, span=test.span), value]
        return Call(CASE, (*args, *([] if otherwise is None else [otherwise])), span=span_of(meta))

    when = all_parts

    def cast(self, meta: Meta, items: list[Any]) -> Expr:
        item, word, *digits = items
        return cast_call(item, word, [token for token in digits if token is not None], span_of(meta))

    def extract(self, meta: Meta, items: list[Any]) -> Expr:
        name, part, item = items
        if name.lower() != "extract":
            raise SyntaxProblem(
                f"`{name}({part} FROM ...)`", span=span_of(meta), expected="EXTRACT(HOUR FROM ...), or a comma"
            )
        return Call(ALIASES.get(part.lower(), part.lower()), (item,), span=span_of(meta))

    def arithmetic(self, meta: Meta, items: list[Any]) -> Expr:
        left, sign, right = items
        refuse_bare_date(left, right, span_of(meta))
        return Arithmetic("-" if sign == "−" else str(sign), left, right, span=span_of(meta))

    def negative(self, meta: Meta, items: list[Any]) -> Expr:
        return negative(items[1], span_of(meta))

    def number(self, meta: Meta, items: list[Any]) -> Expr:
        return Const(number(items[0]), span=span_of(meta))

    def percent(self, meta: Meta, items: list[Any]) -> Expr:
        return Const(number(items[0]) / 100, span=span_of(meta))

    def string(self, meta: Meta, items: list[Any]) -> Expr:
        return Const(unquote(items[0]), span=span_of(meta))

    def bare(self, meta: Meta, items: list[Any]) -> Expr:
        return Param(name_of(items[0]), span=span_of(meta))

    def bare_percent(self, meta: Meta, items: list[Any]) -> Expr:
        return Arithmetic("/", Param(name_of(items[0]), span=span_of(items[0])), Const(100), span=span_of(meta))

    def attribute(self, meta: Meta, items: list[Any]) -> Expr:
        if len(items) == 2 and items[1].lower() == "len" and not is_quoted(items[1]):
            return Length(name_of(items[0]), str(items[1]), span=span_of(meta))
        return Attr(name_of(items[0]), ".".join(items[1:]), span=span_of(meta))

    def indexed(self, meta: Meta, items: list[Any]) -> Expr:
        var = name_of(items[0])
        which = position_of(var, items[1])
        name = ".".join(items[2:]) or None
        if isinstance(which, Over):
            return Group(var, name, which, span=span_of(meta))
        if name is None:
            raise SyntaxProblem(
                f"`{shown(var + items[1])}` is an event, not a value",
                span=span_of(meta),
                expected="an attribute of it",
                hint=f"write {var}{items[1]}.attribute",
            )
        return Attr(var, name, which, span=span_of(meta))

    def member(self, meta: Meta, items: list[Any]) -> Expr:
        """`p.b[1].v`: an event of a closure inside the event of `p`, which another query derives."""
        return Attr(name_of(items[0]), member_name(items[1:], span_of(meta)), span=span_of(meta))

    def member_of_indexed(self, meta: Meta, items: list[Any]) -> Expr:
        var = name_of(items[0])
        which = position_of(var, items[1])
        if isinstance(which, Over):
            raise SyntaxProblem(
                f"`{shown(var + items[1])}` is a group of events",
                span=span_of(meta),
                expected=f"one event, such as {var}[1] or {var}[i]",
            )
        return Attr(var, member_name(items[2:], span_of(meta)), which, span=span_of(meta))

    def call(self, meta: Meta, items: list[Any]) -> Expr:
        fn = items[0].lower()
        args = tuple(item for item in items[1:] if item is not None)
        if fn in AGGREGATES:
            return aggregate(fn, args, span_of(meta))
        if fn in ("prev", "all"):
            if len(args) == 1 and isinstance(args[0], Attr) and args[0].at is At.EVENT:
                at = At.PREVIOUS if fn == "prev" else At.ALL
                return Attr(args[0].var, args[0].name, at, span=span_of(meta))
            raise SyntaxProblem(
                f"`{fn.upper()}` takes one attribute", span=span_of(meta), expected=f"{fn.upper()}(variable.attribute)"
            )
        return Call(ALIASES.get(fn, fn), args, span=span_of(meta))

    def dotted_call(self, meta: Meta, items: list[Any]) -> Expr:
        words = [item.lower() for item in items if isinstance(item, Token)]
        args = tuple(item for item in items if isinstance(item, Expr))
        if "_".join(words) not in FUNCTIONS:
            raise _no_method([str(item) for item in items if isinstance(item, Token)], args, span_of(meta))
        return Call("_".join(words), args, span=span_of(meta))

    def count_all(self, meta: Meta, items: list[Any]) -> Expr:
        if items[0].lower() != "count":
            raise SyntaxProblem(
                f"`{items[0]}(*)`", span=span_of(meta), expected="count(*), or an attribute in brackets"
            )
        return Aggregate("count", "*", None, Over.MATCHES, span=span_of(meta))

    def equivalence(self, meta: Meta, items: list[Any]) -> Expr:
        return items[0] if len(items) == 1 else And(tuple(items), span=span_of(meta))

    def same(self, meta: Meta, items: list[Any]) -> Expr:
        *words, sign, value = items
        if sign is not None and _SAME_AS.get(sign.lower(), str(sign)) != "=":
            raise SyntaxProblem(f"`{sign}` in an equivalence test", span=span_of(sign), expected="`=`")
        return Same(".".join(words), value, span=span_of(meta))

    def duration(self, meta: Meta, items: list[Any]) -> Duration:
        amount, unit = items
        value = name_of(amount) if amount.type == "NAME" else amount_of(amount)
        return Duration(value, OWN_UNIT if unit is None else unit_of(unit), span=span_of(meta))

    def column(self, meta: Meta, items: list[Any]) -> ParsedColumn:
        check_depth(items[0], children, "expression")
        name = items[1]
        return ParsedColumn(items[0], None if name is None else unquote(name) if name.type == "STRING" else str(name))

    def row_limit(self, meta: Meta, items: list[Any]) -> int:
        value = number(items[0])
        if not isinstance(value, int) or value > _MAX_ROWS:
            raise SyntaxProblem(f"`{items[0]}` is not a whole number", span=span_of(meta), expected="a whole number")
        return value


def negative(item: Expr, span: Span | None = None) -> Expr:
    """Minus a number is a number."""
    if isinstance(item, Const) and isinstance(item.value, int | float) and not isinstance(item.value, bool):
        return replace(item, value=-item.value, span=span)
    return Negative(item, span=span)
