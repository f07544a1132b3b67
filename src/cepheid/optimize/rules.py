"""Logical rewrites (ZStream §5.2.1): pure functions from query to query, in one ordered tuple.

Each rule documents its law, an example, and when it refuses (then it returns the query unchanged). A rule leads to
fewer operators, or to as many cheaper ones (C_DIS < C_SEQ < C_CON), so rewriting ends. After each rule the query must
still pass its checks, bind the same variables and partition the stream in the same way, or more finely where that does
not decide the matches.

Truth has three values (see `evaluation`): a predicate that names an absent attribute does not apply. Some laws of
two-valued logic do not hold for three values, so they are missing here or restricted. A predicate on a negated event
belongs to the negation, so it is never split into one on the match. Rules apply to languages whose predicates range
over all combinations (SASE, ZStream).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.checks import check
from cepheid.errors import CepheidError, PatternProblem
from cepheid.events import EMPTY_SCHEMA, Schema
from cepheid.expr import At, Attr, Compare, Const, Expr
from cepheid.optimize.bounds import contradict
from cepheid.pattern import Pattern, Query, Strategy, always_bound, partition_attributes, positives, subpatterns, walk
from cepheid.types import BOOLEAN, FLOAT, Family
from cepheid.values import arithmetic, compare

Rule = Callable[[Query, Schema], Query]

FALSE = Const(False, type=BOOLEAN)
_WEIGHT: dict[type[Pattern], int] = {pt.Disj: 1, pt.Seq: 2, pt.Conj: 3}
_LARGEST_CLASS = 8
"""The number of equal attributes up to which all pairs are added."""


def wants_rewrites(options: Mapping[str, str | bool]) -> bool:
    """Whether the option `rewrite` is on, as by default."""
    return str(options.get("rewrite", True)) not in ("False", "off")


def rewrite(query: Query, schema: Schema = EMPTY_SCHEMA, rules: Sequence[Rule] | None = None) -> Query:
    """The query after all rules."""
    if not query.dialect.has_rewrite_rules and query.dialect.conditions_belong_to_operators:
        return query
    chosen = RULES if query.dialect.has_rewrite_rules else (follow_equalities,)
    for rule in chosen if rules is None else rules:
        rewritten = rule(query, schema)
        if rewritten is not query and not (_has_partitions(query) and _partitions_more(query, rewritten)):
            _require_invariants(rule, query, rewritten)
            query = rewritten
    return query


def _has_partitions(query: Query) -> bool:
    """Whether the matches depend on how the stream is partitioned. Otherwise, partitions only make the work less."""
    counts_events = query.window is not None and query.window.counts_events
    return counts_events or query.non_overlapping or query.strategy is Strategy.PARTITION


def _partitions_more(before: Query, after: Query) -> bool:
    """Whether the rewritten query names a key that was implied: by `a.k IN (b.k)`, or by each side of an OR."""
    return set(partition_attributes(before)) < set(partition_attributes(after))


def _require_invariants(rule: Rule, before: Query, after: Query) -> None:
    name = rule.__name__
    try:
        check(after)
    except CepheidError as problem:
        raise PatternProblem(f"the rule `{name}` broke the query: {problem.what}", span=problem.span) from problem
    if positives(before.pattern) != positives(after.pattern) or before.output != after.output:
        raise PatternProblem(f"the rule `{name}` changed the variables or the output of the query")
    if FALSE not in after.where and not set(partition_attributes(before)) <= set(partition_attributes(after)):
        raise PatternProblem(f"the rule `{name}` changed how the query partitions the stream")
    if expense(after.pattern) > expense(before.pattern):
        raise PatternProblem(f"the rule `{name}` made the pattern more expensive")


def expense(pattern: Pattern) -> tuple[int, int]:
    """The number of operators, and how costly they are (§5.2.1)."""
    operators = [node for node in walk(pattern) if isinstance(node, pt.Seq | pt.Conj | pt.Disj)]
    joins = sum(len(node.items) - 1 for node in operators)
    negations = sum(isinstance(node, pt.Neg) for node in walk(pattern))
    return joins + negations, sum(_WEIGHT[type(node)] * (len(node.items) - 1) for node in operators)


# --- operators --------------------------------------------------------------------------------------------------------


def flatten(query: Query, schema: Schema) -> Query:
    """`A;(B;C)` is `A;B;C`, and so for `&` and `|`; an operator with one operand is the operand.

    Refuses where the inner operator has a window of its own.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(flatten, "PATTERN A;(B;(C&(D&E)))"))
    PATTERN A;B;C&D&E
    """
    return _with_pattern(query, _flattened(query.pattern))


def _flattened(pattern: Pattern) -> Pattern:
    match pattern:
        case pt.Seq() | pt.Conj() | pt.Disj():
            items: list[Pattern] = []
            for item in map(_flattened, pattern.items):
                inner = isinstance(item, type(pattern)) and getattr(item, "window", None) is None
                items.extend(subpatterns(item) if inner else [item])
            alone = len(items) == 1 and getattr(pattern, "window", None) is None
            if alone and not isinstance(items[0], pt.Neg):
                return items[0]
            return replace(pattern, items=tuple(items)) if tuple(items) != pattern.items else pattern
        case _:
            return pattern


def merge_negations(query: Query, schema: Schema) -> Query:
    """`!B & !C` is `!(B | C)`, and so is `!B;!C`: between the same neighbours neither may occur (§5.2.1).

    Refuses in languages without disjunction, and for a conjunction that has other operands too.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(merge_negations, "PATTERN A;(!B&!C);!D;E WITHIN 5"))
    PATTERN A;!(B|C|D);E
    WITHIN 5 units
    """
    if pt.Disj not in query.dialect.operators:
        return query
    return _with_pattern(query, _merged(query.pattern))


def _merged(pattern: Pattern) -> Pattern:
    match pattern:
        case pt.Conj() if all(isinstance(item, pt.Neg) for item in pattern.items):
            return _neither([item for item in pattern.items if isinstance(item, pt.Neg)])
        case pt.Seq():
            items: list[Pattern] = []
            for is_negated, group in itertools.groupby(map(_merged, pattern.items), lambda i: isinstance(i, pt.Neg)):
                found = list(group)
                negations = [item for item in found if isinstance(item, pt.Neg)]
                items.extend([_neither(negations)] if is_negated and len(found) > 1 else found)
            return replace(pattern, items=tuple(items)) if tuple(items) != pattern.items else pattern
        case pt.Conj() | pt.Disj():
            items = [_merged(item) for item in pattern.items]
            return replace(pattern, items=tuple(items)) if tuple(items) != pattern.items else pattern
        case _:
            return pattern


def _neither(negations: Sequence[pt.Neg]) -> pt.Neg:
    classes: list[Pattern] = []
    for negation in negations:
        item = negation.item
        classes.extend(item.items if isinstance(item, pt.Disj) else [item])
    return pt.Neg(pt.Disj(tuple(classes)), span=negations[0].span)


# --- single predicates ------------------------------------------------------------------------------------------------


def fold_constants(query: Query, schema: Schema) -> Query:
    """Expressions over constants are computed: `a.x > 2 * 3` is `a.x > 6`, `1 < 2` is true and goes.

    Keeps `p AND TRUE` under NOT, where it is not `p` if `p` does not apply.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(fold_constants, "PATTERN A;B WHERE A.x > 2 * 3 AND (1 < 2 OR B.x = 1)"))
    PATTERN A;B
    WHERE A.x > 6
    """
    return _with_parts(query, lambda predicate: ex.conjuncts(_folded(predicate, True)))


def _folded(expr: Expr, positive: bool) -> Expr:
    match expr:
        case ex.And():
            items = [_folded(item, positive) for item in expr.items]
            if FALSE in items:
                return FALSE
            kept = [item for item in items if item != ex.TRUE] if positive else items
            return ex.conjunction(kept)
        case ex.Or():
            items = [_folded(item, positive) for item in expr.items]
            if ex.TRUE in items:
                return ex.TRUE
            kept = [item for item in items if item != FALSE]
            return FALSE if not kept else kept[0] if len(kept) == 1 else ex.Or(tuple(kept), span=expr.span)
        case ex.Not():
            item = _folded(expr.item, False)
            return Const(not item.value) if item in (ex.TRUE, FALSE) and isinstance(item, Const) else ex.Not(item)
        case Compare():
            left, right = _computed(expr.left), _computed(expr.right)
            if isinstance(left, Const) and isinstance(right, Const):
                return Const(compare(expr.op, left.value, right.value))
            return replace(expr, left=left, right=right)
        case _:
            return expr


def _computed(expr: Expr) -> Expr:
    match expr:
        case ex.Arithmetic():
            left, right = _computed(expr.left), _computed(expr.right)
            if isinstance(left, Const) and isinstance(right, Const):
                result = arithmetic(expr.op, left.value, right.value, expr.type)
                return Const(result, span=expr.span, type=expr.type)
            return replace(expr, left=left, right=right)
        case ex.Negative():
            item = _computed(expr.item)
            if isinstance(item, Const):
                return Const(arithmetic("-", 0, item.value, expr.type), span=expr.span, type=expr.type)
            return replace(expr, item=item)
        case _:
            return expr


def normalise(query: Query, schema: Schema) -> Query:
    """One form for one meaning: the constant on the right, `=` for IN with one value, no double NOT; NOT over OR is
    split, so that each part can be pushed to its class. `a.k - b.k = 0` is `a.k = b.k`, which can be a key.

    Refuses NOT over a comparison, which is no other comparison where something is null, and NOT over AND.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(normalise, "PATTERN A;B WHERE 5 < A.x AND NOT (A.y = 1 OR B.y = 2)"))
    PATTERN A;B
    WHERE A.x > 5 AND NOT A.y = 1 AND NOT B.y = 2
    """
    return _with_parts(query, _normal)


def _normal(expr: Expr) -> Iterator[Expr]:
    match expr:
        case ex.And():
            for item in expr.items:
                yield from _normal(item)
        case ex.Not(item=ex.Not(item=inner)):
            yield from _normal(inner)
        case ex.Not(item=ex.Or(items=items)):
            for item in items:
                yield from _normal(ex.Not(item, span=expr.span))
        case Compare(left=Const(), right=right) if not isinstance(right, Const):
            yield from _normal(replace(expr, op=ex.FLIPPED[expr.op], left=expr.right, right=expr.left))
        case Compare(
            op="=", left=ex.Arithmetic(op="-", left=Attr() as one, right=Attr() as other), right=Const(value=0)
        ):
            yield Compare("=", one, other, span=expr.span) if _have_exact_difference(one, other) else expr
        case ex.In(values=(value,)):
            yield Compare("=", expr.item, value, span=expr.span)
        case _:
            yield expr


def _have_exact_difference(one: Attr, other: Attr) -> bool:
    """Whether the difference is 0 for equal values and for no others. That of equal infinities, or of large unsigned
    numbers, is undefined."""
    family = one.type.family
    return family is other.type.family and (family is Family.INTEGER or one.type.is_time)


def hoist_common(query: Query, schema: Schema) -> Query:
    """`(p AND q) OR (p AND r)` is `p AND (q OR r)`, so that `p` can be pushed to its class.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(hoist_common, "PATTERN A;B WHERE A.x = 1 AND B.y = 1 OR A.x = 1 AND B.y = 2"))
    PATTERN A;B
    WHERE A.x = 1 AND (B.y = 1 OR B.y = 2)
    """
    return _with_parts(query, _hoisted)


def _hoisted(expr: Expr) -> Iterator[Expr]:
    if not isinstance(expr, ex.Or):
        yield expr
        return
    branches = [ex.conjuncts(item) for item in expr.items]
    common = [p for p in branches[0] if all(p in branch for branch in branches[1:])]
    yield from common
    rest = [tuple(p for p in branch if p not in common) for branch in branches]
    if not common:
        yield expr
    elif all(rest):
        yield ex.Or(tuple(ex.conjunction(part) for part in rest), span=expr.span)


# --- all predicates together ------------------------------------------------------------------------------------------


def remove_duplicates(query: Query, schema: Schema) -> Query:
    """A duplicate predicate is dropped, and so is one that a narrower predicate implies: `a.x > 3 AND a.x > 5` is `a.x
    > 5`.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(remove_duplicates, "PATTERN A;B WHERE A.x > 3 AND A.id = B.id AND A.x > 5 AND B.id = A.id"))
    PATTERN A;B
    WHERE A.id = B.id AND A.x > 5
    """
    kept: list[Expr] = []
    for predicate in query.where:
        if not any(_same(predicate, other) for other in kept):
            kept.append(predicate)
    kept = [p for p in kept if not any(p is not other and _narrower(other, p) for other in kept)]
    return _with_where(query, kept)


def _same(one: Expr, other: Expr) -> bool:
    match one, other:
        case Compare(), Compare():
            turned = Compare(ex.FLIPPED[one.op], one.right, one.left)
            return other in (one, turned)
    return one == other


def _narrower(narrow: Expr, wide: Expr) -> bool:
    """Whether `narrow` bounds the same attribute by a constant, in the same direction, more tightly."""
    match narrow, wide:
        case (Compare(left=Attr() as a, right=Const() as tight), Compare(left=Attr() as b, right=Const() as loose)) if (
            a == b and narrow.op in ("<", "<=", ">", ">=") and wide.op in ("<", "<=", ">", ">=")
        ):
            if narrow.op[0] != wide.op[0]:
                return False
            if tight == loose:
                return len(narrow.op) < len(wide.op)
            return compare(wide.op[0], tight.value, loose.value)
    return False


def follow_equalities(query: Query, schema: Schema) -> Query:
    """Equality is transitive: with `a.x = b.x` and `b.x = c.x` also `a.x = c.x`, and with `a.x = 5` also `b.x = 5`, so
    that any join can look up and constants reach every class. A negated event or a closure's members that must equal
    several of them need to equal one: the next after it, so that negation can be pushed down (NSEQ). The events of a
    negated operator that must equal the same event equal one another: `A;!(B&C);D` with `A.x = B.x AND A.x = C.x`.

    Refuses attributes that an event may lack and variables that a match may not bind, where the equality may not apply;
    and equalities that would make the query partition the stream.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(follow_equalities, "PATTERN A;!B;C WHERE A.id = B.id AND A.id = C.id AND B.id = C.id AND A.id = 5"))
    PATTERN A;!B;C
    WHERE A.id = C.id AND B.id = C.id AND A.id = 5 AND C.id = 5
    """
    sure = _SureAttributes(query, schema)
    classes = sure.classes()
    together = list(_equal_when_absent(query, classes, sure))
    if not classes and not together:
        return query
    where = _one_equality_each(query, classes)
    for implied in (*(_implied(members, where) for members in classes), together):
        where += [p for p in implied if not any(_same(p, other) for other in where)]
    rewritten = _with_where(query, where)
    return rewritten if partition_attributes(rewritten) == partition_attributes(query) else query


def lean_equalities(query: Query, predicates: Sequence[Expr], schema: Schema) -> list[Expr]:
    """The predicates after the expansion of equivalence tests, with a single equality between each negated event (or
    closure) and a set of equal events."""
    spelt_out = replace(query, where=tuple(predicates))
    return _one_equality_each(spelt_out, _SureAttributes(spelt_out, schema).classes())


def _implied(members: Sequence[Attr], where: Sequence[Expr]) -> Iterator[Expr]:
    constants = [
        p.right
        for p in where
        if isinstance(p, Compare) and p.op == "=" and p.left in members and isinstance(p.right, Const)
    ]
    for value in constants:
        if value.value is not None:
            yield from (Compare("=", member, value) for member in members)
    if len(members) <= _LARGEST_CLASS:
        yield from (Compare("=", one, other) for one, other in itertools.combinations(members, 2))


def _equal_when_absent(query: Query, classes: Sequence[Sequence[Attr]], sure: _SureAttributes) -> Iterator[Expr]:
    """The equalities between events of one negated operator that must equal the same event, or equal ones. If that
    event is of a branch that did not occur, the equalities with it do not apply."""
    operators = [
        (set(pt.roles(node)), bound)
        for negation, bound in _negations(query.pattern)
        for node in pt.walk(negation.item)
        if isinstance(node, pt.Seq | pt.Conj)
    ]
    groups: dict[Attr | int, list[Attr]] = {}
    for predicate in query.where if operators else ():
        match predicate:
            case Compare(op="=", left=Attr() as left, right=Attr() as right):
                for inner, outer in ((left, right), (right, left)):
                    if (
                        query.roles[inner.var].negated
                        and not query.roles[outer.var].negated
                        and sure.equals(inner, outer)
                    ):
                        members = next((number for number, some in enumerate(classes) if outer in some), outer)
                        groups.setdefault(members, []).append(inner)
    for key, attributes in groups.items():
        needed = {key.var} if isinstance(key, Attr) else set()
        for one, other in itertools.combinations(attributes, 2):
            names = {one.var, other.var}
            if one.var != other.var and any(names <= inside and needed <= bound for inside, bound in operators):
                yield Compare("=", one, other)


def _negations(pattern: Pattern, bound: frozenset[str] = frozenset()) -> Iterator[tuple[pt.Neg, frozenset[str]]]:
    """The negations, each with the variables that are bound wherever it applies."""
    if isinstance(pattern, pt.EventClass):
        return
    bound |= frozenset(always_bound(pattern))
    if isinstance(pattern, pt.Neg):
        yield pattern, bound
    for item in pt.subpatterns(pattern):
        yield from _negations(item, bound)


def _one_equality_each(query: Query, classes: Sequence[Sequence[Attr]]) -> list[Expr]:
    """The conjuncts without the further equalities of negated and closure variables with one class."""
    order = list(query.roles)
    chosen: dict[tuple[Attr, int], tuple[Expr, Attr]] = {}
    dropped: list[Expr] = []
    for predicate in query.where:
        linked = _link(predicate, classes)
        if linked is None:
            continue
        outsider, member, number = linked
        role = query.roles[outsider.var]
        if not role.negated and not role.binds_many:
            continue  # a branch of a disjunction may be joined with any member first
        known = chosen.get((outsider, number))
        if known is None or _nearness(order, outsider, member) < _nearness(order, outsider, known[1]):
            chosen[outsider, number] = predicate, member
            dropped += [] if known is None else [known[0]]
        else:
            dropped.append(predicate)
    return [p for p in query.where if not any(p is other for other in dropped)]


def _link(predicate: Expr, classes: Sequence[Sequence[Attr]]) -> tuple[Attr, Attr, int] | None:
    """An attribute outside of the classes, the member of a class that it equals, and the number of the class."""
    match predicate:
        case Compare(op="=", left=Attr() as left, right=Attr() as right):
            for outsider, member in ((left, right), (right, left)):
                for number, members in enumerate(classes):
                    inside = any(outsider in others for others in classes)
                    if member in members and not inside and outsider.at is At.EVENT:
                        return outsider, member, number
    return None


def _nearness(order: Sequence[str], outsider: Attr, member: Attr) -> tuple[bool, int]:
    distance = order.index(member.var) - order.index(outsider.var)
    return distance < 0, abs(distance)


def remove_contradictions(query: Query, schema: Schema) -> Query:
    """No value satisfies `a.x > 5 AND a.x < 3`: then there is no match, which is `WHERE FALSE`. A negated class with a
    contradiction never occurs and is dropped.

    Refuses attributes that an event may lack and variables that a match may not bind.

    >>> from cepheid.optimize.examples import shown
    >>> print(shown(remove_contradictions, "PATTERN A;!B;C WHERE A.x > 5 AND B.x = 1 AND B.x = 2"))
    PATTERN A;C
    WHERE A.x > 5
    >>> from cepheid.optimize.examples import SCHEMA, example
    >>> FALSE in rewrite(example("PATTERN A;B WHERE A.x > 5 AND A.x < 3"), SCHEMA).where
    True
    """
    if FALSE in query.where:
        return query
    sure = _SureAttributes(query, schema)
    found = query.roles
    impossible: list[str] = []
    tests: dict[Attr, list[tuple[str, object]]] = {}
    for p in query.where:
        match p:
            case Compare(left=Attr(at=At.EVENT) as attr, right=Const(value=value)):
                tests.setdefault(attr, []).append((p.op, value))
    for attr, limits in tests.items():
        if found[attr.var].kleene is None and sure.has(attr) and contradict(limits):
            if attr.var in sure.bound:
                return _with_where(query, [*query.where, FALSE])
            if found[attr.var].negated:
                impossible.append(attr.var)
    parts = [always_bound(part) for part in itertools.chain(*pt.negated_parts(query.pattern))]
    # What a negated operator needs is impossible with it; one of several alternatives inside it stays.
    impossible = [var for bound in parts if set(bound).intersection(impossible) for var in bound]
    if not impossible:
        return query
    kept = [p for p in query.where if not ex.variables(p).intersection(impossible)]
    return replace(query, pattern=_flattened(_without(query.pattern, impossible)), where=tuple(kept))


def _without(pattern: Pattern, names: Sequence[str]) -> Pattern:
    """The pattern without these negated classes, and without the negated operators that need them."""

    def remaining(item: Pattern) -> Pattern | None:
        match item:
            case pt.Neg():
                several = item.item.items if isinstance(item.item, pt.Disj) else (item.item,)
                left = [c for c in several if not set(always_bound(c)).intersection(names)]
                if len(left) == len(several):
                    return item
                return None if not left else replace(item, item=left[0] if len(left) == 1 else pt.Disj(tuple(left)))
            case pt.Seq() | pt.Conj() | pt.Disj():
                kept = [part for inner in item.items if (part := remaining(inner)) is not None]
                return replace(item, items=tuple(kept)) if kept else None
            case _:
                return item

    rest = remaining(pattern)
    assert rest is not None
    return rest


RULES: tuple[Rule, ...] = (
    flatten,
    merge_negations,
    flatten,  # the rest of a conjunction of negations may be a single operand
    fold_constants,
    normalise,  # before duplicates are removed: one form for one meaning
    hoist_common,
    remove_duplicates,
    follow_equalities,
    remove_contradictions,  # after constants have followed the equalities
)


# --- shared by the rules ----------------------------------------------------------------------------------------------


class _SureAttributes:
    """Which attributes every match has: of plain variables that it binds for certain, or that all types of a class
    have."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.query = query
        self.schema = schema
        self.roles = query.roles
        self.bound = frozenset(var for var in always_bound(query.pattern) if not self.roles[var].binds_many)

    def has(self, attr: Attr) -> bool:
        """Whether every event of the variable's class has the attribute."""
        event_class = self.roles[attr.var].event_class
        types = event_class.types or tuple(self.schema.types)
        known = bool(types) and not event_class.by_name
        return known and all(attr.name in self.schema.types.get(t, {}) for t in types)

    def equals(self, left: Attr, right: Attr) -> bool:
        """Whether an equality of attributes of events that are there surely applies, and is transitive."""
        # A decimal equals the floats near it, so equality is not transitive there.
        kinds = (left.type == FLOAT) == (right.type == FLOAT)
        return kinds and all(a.at is At.EVENT and self.has(a) for a in (left, right))

    def classes(self) -> list[list[Attr]]:
        """The attributes of bound variables that the predicates make equal."""
        groups: list[list[Attr]] = []
        for predicate in self.query.where:
            match predicate:
                case Compare(op="=", left=Attr() as left, right=Attr() as right) if left.var != right.var:
                    pair = [left, right]
                    if not all(a.var in self.bound for a in pair) or not self.equals(left, right):
                        continue
                    touched = [group for group in groups if left in group or right in group]
                    merged = list(dict.fromkeys(itertools.chain(*touched, pair)))
                    groups = [group for group in groups if group not in touched] + [merged]
        return groups


def _with_where(query: Query, where: Iterable[Expr]) -> Query:
    found = tuple(where)
    return query if found == query.where else replace(query, where=found)


def _with_parts(query: Query, parts_of: Callable[[Expr], Iterable[Expr]]) -> Query:
    """The query with every conjunct replaced by its parts. A conjunct on a negated variable, or on that of a
    closure, decides which of its events count: no part may be about the match alone. One that names a variable of a
    branch not taken does not apply as a whole (ruling 12): no part may leave that variable out."""
    special = {var for var, role in query.roles.items() if role.negated or role.binds_many}
    branches = [node for node in walk(query.pattern) if isinstance(node, pt.Disj)]
    special |= {node.var for branch in branches for node in walk(branch) if isinstance(node, pt.EventClass)}
    where: list[Expr] = []
    for predicate in query.where:
        parts = list(parts_of(predicate))
        named = ex.variables(predicate) & special if special and parts != [predicate] else special
        is_alike = named is special or all(ex.variables(part) & special == named for part in parts)
        where += parts if is_alike else [predicate]
    return _with_where(query, where)


def _with_pattern(query: Query, pattern: Pattern) -> Query:
    return query if pattern == query.pattern else replace(query, pattern=pattern)
