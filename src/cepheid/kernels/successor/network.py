"""What generated source does with events: each composite event goes from the operator that puts it out to the one above
it, until it is a match.

An event that may be a successor visits the instances of its key (`index1`), and those that it succeeds go on. Where the
successor is a composite event, those of one time wait in a queue until the time has passed, since the one with the
earliest history decides (`late` operators).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext

from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import Term
from cepheid.expr import Aggregate, Attr, Expr, Filter, Not, OccursWithin
from cepheid.expr import walk as walk_expr
from cepheid.kernels.aggregates import ACCUMULATORS
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import (
    ENDS,
    KEEPS,
    LATE,
    STARTS,
    Chain,
    Composite,
    Field,
    Limit,
    after_a_while,
    chosen,
    field_name,
    joined,
    passed_on,
)
from cepheid.kernels.successor.conditions import Sides, waits_for
from cepheid.kernels.successor.failures import is_shown
from cepheid.kernels.successor.late_tests import LateTests, most_events
from cepheid.kernels.successor.links import links_of
from cepheid.kernels.successor.operators import (
    Exception_,
    Iteration,
    Leaf,
    Next,
    Operator,
    Selection,
    Timer,
    Union,
    Waiting,
    bounds_of,
    first_variables,
    last_variables,
    leaves_of,
)
from cepheid.kernels.successor.waiting import Cancelled
from cepheid.physical import Kind


class Network(LateTests, ABC):
    """The operators of a plan, as what is done with the composite events that they put out."""

    # --- output -------------------------------------------------------------------------------------------------------

    def put_out(self, w: Writer, op: Operator, event: Composite) -> None:
        """A composite event of an operator goes to the one above it."""
        above = op.parent
        match above:
            case None:
                self.match(w, event)
            case Union():
                self.put_out(w, above, chosen(above, event, self.values))
            case Selection():
                with w.when(self.conditions.write(w, self.early(above), Sides(None, event))):
                    w("pass")
                    self.put_out(w, above, self._limited(passed_on(above, event), above.keep, Sides(None, event)))
            case Timer():
                self._start_timer(w, above, event)
            case Exception_() if op is above.item:
                self._unless_cancelled(w, above, event, STARTS, event)
                with w.block(f"if not cancelled{above.number}:"):
                    self.put_out(w, above, passed_on(above, event))
                self._else_failed(w, above, "cancel", event)
            case Next() if op is above.left:
                self.insert(w, above, event)
            case Next() | Exception_() if op is above.cancel:
                self._remember_cancel(w, above, event)
            case Next() | Iteration():
                self._occur(w, above, event)

    def _else_failed(self, w: Writer, op: Operator, why: str, event: Composite) -> None:
        """`else: failed += 1`: an instance is discarded; `event` is as far as it came."""
        with w.block("else:"):
            w("pass")
            if is_shown(op):
                if self.late_inside(op):
                    self.fail_later(w, op, event)
                else:
                    w(f"{self.builder.register('failed')} += {self.paths(event)}")
                self.fail(w, op, why, event)

    @abstractmethod
    def fail(self, w: Writer, op: Operator, why: str, event: Composite) -> None:
        """An instance of an operator is discarded for a reason."""

    @abstractmethod
    def fail_later(self, w: Writer, op: Operator, event: Composite) -> None:
        """An instance is discarded; which of its chains were instances is tested late."""

    @abstractmethod
    def match(self, w: Writer, event: Composite) -> None:
        """A composite event of the outermost operator is a match."""

    def _occur(self, w: Writer, op: Waiting, event: Composite) -> None:
        if op.is_prompt:
            self.succeed(w, op, event)
            return
        queue = self.queues[op]
        if self.checked:
            queue.ensure(w)
        queue.fill(w, queue.top, event)
        w(f"{queue.top} += {queue.size}", "wake = tick", "made += 1")

    # --- successors ---------------------------------------------------------------------------------------------------

    def succeed(self, w: Writer, op: Waiting, event: Composite) -> None:
        """An event that may be the successor of waiting instances visits those of its key:

        s1 = slot_for(index1, column0[e])
        i1, before1 = index1[s1 + 1], EMPTY
        while i1 >= 0:
            following1 = w1[i1 + NEXT]
            if w1[i1 + DONE] < t:
                ...                                  it was decided before: drop it
            elif w1[i1 + END] < t:
                ...                                  the event is its successor
            i1 = following1
        """
        table, k = self.tables[op], op.number
        visits = self.visited(table, event)
        lists = list(dict.fromkeys(number for number, _ in visits))
        if self.is_grouped(op):
            w(f"n{k} = EMPTY")
        if len(visits) == 1:
            w(f"before{k} = EMPTY")
            ((number, choices),) = visits
            if table.is_shared:
                w(f"at{k} = {number}")
            key, known = self._key(w, event, choices, f"{k}_{number}")
            with w.when(known):
                self._head_of(w, op, key, number)
                self._visit(w, op, event, lists)
        else:
            with w.block(f"for turn{k} in range({len(visits)}):"):
                w(f"before{k} = i{k} = EMPTY", f"at{k} = s{k} = link{k} = 0")
                for turn, (number, choices) in enumerate(visits):
                    with w.block(f"{'elif' if turn else 'if'} turn{k} == {turn}:"):
                        key, known = self._key(w, event, choices, f"{k}_{turn}")
                        w(f"at{k}, link{k} = {number}, {table.field('next', number)}")
                        with w.when(known):
                            self._head_of(w, op, key, number)
                self._visit(w, op, event, lists)
        if isinstance(op, Iteration):
            self._begin_chain(w, op, event)

    def _head_of(self, w: Writer, op: Waiting, key: str | None, number: int) -> None:
        table, k = self.tables[op], op.number
        if key is None:
            w(f"s{k} = 0", f"i{k} = {table.head(number)} - 1")
        else:
            index = table.index_name(number)
            w(f"s{k} = slot_for({index}, {key})", f"i{k} = {index}[s{k} + 1]")

    def _visit(self, w: Writer, op: Waiting, event: Composite, lists: Sequence[int]) -> None:
        table, k = self.tables[op], op.number
        name, starts, tried = table.name, event.read(STARTS), self.builder.register(f"tried{k}")
        with w.block(f"while i{k} >= 0:"):
            w(f"following{k} = {name}[i{k} + {self._link_of(op, lists)}]", f"{tried} += 1")
            dead = [
                f"{name}[i{k} + DONE] < {event.read(ENDS)}" if op.is_prompt else f"{name}[i{k} + DONE] <= decided{k}"
            ]
            if self.expires(op):
                dead.append(f"{table.at('until', f'i{k}')} < {event.read(ENDS)}")
            with w.block(f"if {' or '.join(dead)}:"):
                self._drop(w, op, lists)
            decided = "" if op.is_prompt else f"{name}[i{k} + DONE] >= stamp and "
            with w.block(f"elif {decided}{name}[i{k} + END] < {starts}:"):
                self._test(w, op, event, lists)
            with w.block("else:"):
                w(f"before{k} = i{k}")
            w(f"i{k} = following{k}")

    def _link_of(self, op: Waiting, lists: Sequence[int]) -> str:
        return f"link{op.number}" if len(lists) > 1 else self.tables[op].field("next", lists[0])

    def _drop(self, w: Writer, op: Waiting, lists: Sequence[int]) -> None:
        """Take the instance at hand out of its list, and free it if it is in no other one."""
        table, k = self.tables[op], op.number
        name, free = table.name, self.builder.register(f"{self.tables[op].name}_free")
        with w.block(f"if before{k} != EMPTY:"):
            w(f"{name}[before{k} + {self._link_of(op, lists)}] = following{k}")
        for number in lists:
            with w.block("else:" if len(lists) == 1 else f"elif at{k} == {number}:"):
                if number in table.keyed:
                    w(f"{table.index_name(number)}[s{k} + 1] = following{k} if following{k} != EMPTY else DEAD")
                else:
                    w(f"{table.head(number)} = following{k} + 1")
        if not table.is_shared:
            w(f"{name}[i{k} + DONE] = FREED", f"{name}[i{k} + NEXT] = {free} - 1", f"{free} = i{k} + 1")
            w(f"live{k} -= 1")

    def _test(self, w: Writer, op: Waiting, event: Composite, lists: Sequence[int]) -> None:
        """φ, then θ, of the instance at hand and the event."""
        k = op.number
        waiting = self.tables[op].composite(waits_for(op), f"i{k}", f"{self.tables[op].name}[i{k} + END]")
        iteration = op if isinstance(op, Iteration) else None
        early = iteration is not None and _aggregates((*op.skip, *op.keep))
        made: Composite | None = None
        if iteration is not None and early:
            made = self._chain(w, iteration, waiting, event)
        sides = Sides(waiting, event, iteration, None if made is None else made.read)
        decided = self._of(self.tables[op]).decided
        skip = self.conditions.write(w, [p for p in op.skip if p not in decided], sides)
        for turn, part in enumerate(self._of(self.tables[op]).disjuncts[:-1]):
            skip += [f"(turn{k} <= {turn} or {test})" for test in self.conditions.write(w, [Not(part)], sides)]
        with w.block(f"if {' and '.join(skip)}:") if skip else nullcontext():
            if iteration is not None and not self.is_grouped(op):
                made = made or self._chain(w, iteration, waiting, event)
            self._decide(w, op, lists)
            self._keep(w, op, sides, made)
        if skip:
            with w.block("else:"):
                w(f"before{k} = i{k}")

    def _decide(self, w: Writer, op: Waiting, lists: Sequence[int]) -> None:
        """The instance at hand has found its successor. Others of the same time may succeed it too."""
        k, name = op.number, self.tables[op].name
        if not op.is_prompt:
            w(f"{name}[i{k} + DONE] = stamp", f"before{k} = i{k}")
            return
        if _is_exclusive(op.awaited) and not self.tables[op].is_shared:
            with w.block("if lone:"):
                self._drop(w, op, lists)
            with w.block("else:"):
                w(f"{name}[i{k} + DONE] = t", f"before{k} = i{k}")
        else:
            w(f"{name}[i{k} + DONE] = t", f"before{k} = i{k}")

    def _keep(self, w: Writer, op: Waiting, sides: Sides, made: Composite | None) -> None:
        event = sides.occurring
        keep = [f"{event.read(KEEPS)} != 0"] if isinstance(op.awaited, Leaf) and op.awaited.keeps else []
        keep += self.conditions.write(w, self.early(op), sides)
        with w.block(f"if {' and '.join(keep)}:") if keep else nullcontext():
            if isinstance(op, Iteration) and self.is_grouped(op):
                assert sides.before is not None
                self.advance(w, op, sides.before)
            elif isinstance(op, Iteration):
                assert made is not None
                self._extended(w, op, sides.before, event, made)
            else:
                assert isinstance(op, Next) and sides.before is not None
                self._sequence(w, op, sides)
        if keep:
            failed = sides.before if isinstance(op, Iteration) else None
            if isinstance(op, Next) and sides.before is not None:
                failed = joined(op, sides.before, event, self.values, self.points)
            if failed is not None:
                self._else_failed(w, op, "keep", self._in_time(op, failed, sides))

    def _sequence(self, w: Writer, op: Next, sides: Sides) -> None:
        left, right = sides.before, sides.occurring
        assert left is not None
        event = joined(op, left, right, self.values, self.points)
        self._count_dropped(w, op, event, sides)
        event = self._limited(event, (*op.skip, *op.keep), sides)
        if op.cancel is not None:
            self._unless_cancelled(w, op, event, ENDS, left)
        with w.block(f"if not cancelled{op.number}:") if op.cancel is not None else nullcontext():
            made = self.builder.register(f"made{op.number}")
            w(f"{made} += 1")
            self.put_out(w, op, self.with_history(w, op, event, left, right))
        if op.cancel is not None:
            self._else_failed(w, op, "cancel", event)

    def _count_dropped(self, w: Writer, op: Next, event: Composite, sides: Sides) -> None:
        """`failed += node1[... + COUNT] - paths_since(...)[0]`: chains of a group whose instances θ's OCCURS WITHIN
        discards, while others of the group go on."""
        waiting, last = waits_for(op).variables, last_variables(op.awaited)
        windows = [p for p in op.keep if isinstance(p, OccursWithin)]
        silent = [p for p in windows if not any(one in waiting and other in last for one, other, _ in bounds_of(p))]
        instances = self._in_time(op, event, sides)
        kept = self._limited(instances, silent, sides)
        groups = [g for g in self.groups_of(op.left) if kept.read(Limit(g.number)) != instances.read(Limit(g.number))]
        if not groups or not is_shown(op):
            return
        if self.late_inside(op):
            raise self._differs(groups[0])
        w(f"{self.builder.register('failed')} += {self.paths(instances)} - {self.paths(kept)}")

    def _in_time(self, op: Waiting, event: Composite, sides: Sides) -> Composite:
        """An instance whose groups have only the paths that were instances still: OCCURS WITHIN has dropped others
        without failure."""
        event = self._limited(event, op.skip, sides)
        bounds, ticks = list(self.deadlines[op]), self.lifetimes[op]
        if ticks is not None:
            bounds += [(var, ticks) for var in first_variables(waits_for(op))]
        for var, ticks in bounds:
            for group in self.groups_of(event.operator):
                if var in group.variables:
                    since = f"{sides.occurring.read(ENDS)} - {self.conditions.constants.integer(ticks)}"
                    event = self._since(event, group, since)
        return event

    def _limited(self, event: Composite, predicates: Sequence[Expr], sides: Sides) -> Composite:
        """A composite whose groups OCCURS WITHIN limits: `max(w1[i1 + W1_LIMIT1], t - integers[1])`."""
        for predicate in predicates:
            bare = predicate.item if isinstance(predicate, Filter) else predicate
            if not isinstance(bare, OccursWithin):
                continue
            for op in self.groups_of(event.operator):
                if not {bare.first, bare.second}.isdisjoint(op.variables):
                    event = self._since(event, op, self.conditions.earliest(bare, sides))
        return event

    def _since(self, event: Composite, group: Iteration, limit: str) -> Composite:
        """A composite with only those paths of a group that start at a time or later."""
        before = event.read(Limit(group.number))
        return event.reading({Limit(group.number): limit if before == f"-{LATE}" else f"max({before}, {limit})"})

    # --- iterations ---------------------------------------------------------------------------------------------------

    def _chain(self, w: Writer, op: Iteration, chain: Composite | None, item: Composite) -> Composite:
        """The values of the chain with one more item, in variables: `v1_sum0_1 = ...`. Of the first item, the values
        of one event."""
        k = op.number
        fields = self.chain_values[op]
        locals_: dict[Field, str] = {}
        for field in list(fields):
            locals_[field] = f"v{k}_{field_name(field, self.values).lower()}"
            w(f"{locals_[field]} = {self.chained_value(op, field, chain, item)}")

        def read(field: Field) -> str:
            match field:
                case "ends":
                    return item.read(ENDS)
                case "latest":
                    return read(STARTS)
                case Chain() if field.operator == k:
                    self.chained.add(k)
                    return f"n{k}"
                case "starts" | "oldest" | Value():
                    for needed in [field] if isinstance(field, str) else [field, *self.values.read_by_update(field)]:
                        fields.setdefault(needed)
                    return locals_.get(field, "0")
                case _:
                    raise AssertionError(f"a chain has no {field}")

        return Composite(op, read, frozenset(op.variables))

    def chained_value(self, op: Iteration, field: Field, chain: Composite | None, item: Composite) -> str:
        if not isinstance(field, Value):
            return (item if chain is None else chain).read(field)
        var = self.values.variable(field)
        if field.what == "skipped":
            absent = "1" if var in item.unbound else "0" if var in item.bound else None
            return absent or item.read(Value("absent", field.component))
        old = self.values.of_none(field) if chain is None else chain.read(field)
        if var in item.unbound:
            return old
        if var in op.item.many:
            # Only first and last values of inner groups are read.
            new = item.read(field)
            if chain is not None and field.what.startswith("first"):
                new = f"({new} if {chain.read(Value('absent', field.component))} else {old})"
        else:
            x = self.item_term(field, item)
            component = field.component
            is_time = field.what in ("first_time", "last_time")
            times = [item.read(Value(what, component)) if is_time else "" for what in ("first_time", "last_time")]
            if field.what in ACCUMULATORS and ACCUMULATORS[field.what].compares and x.kind is Kind.CODE:
                self.builder.constants.needs_ranks = True
            if chain is None:
                new = self.values.of_one(field, x, times[0], times[1])
            else:
                new = self.values.with_one_more(field, chain.read, x, times[0], times[1])
        if var in item.bound:
            return new
        return f"({old} if {item.read(Value('absent', field.component))} else {new})"

    def item_term(self, value: Value, item: Composite) -> Term:
        if value.column < 0:
            return Term("0", Kind.INT, known="True")
        return self.values.term(Attr(self.values.variable(value), self.values.names[value.column]), "last", item, False)

    def _begin_chain(self, w: Writer, op: Iteration, item: Composite) -> None:
        """A chain of one item."""
        k = op.number
        made = None if self.is_grouped(op) else self._chain(w, op, None, item)
        sides = Sides(None, item, op, None if made is None else made.read)
        tests = [f"{item.read(KEEPS)} != 0"] if isinstance(op.item, Leaf) and op.item.keeps else []
        tests += self.conditions.write(w, [*op.skip, *op.keep], sides)
        w(f"s{k} = -1", f"before{k} = 0")
        with w.block(f"if {' and '.join(tests)}:") if tests else nullcontext():
            if made is None:
                self.start(w, op, item)
            else:
                self._extended(w, op, None, item, made)
        if made is None:
            with w.block(f"if n{k} != EMPTY:"):
                w(f"{self.builder.register(f'made{k}')} += 1")
                group = self._limited(self.group(w, op, item), (*op.skip, *op.keep), sides)
                event = self.with_history(w, op, group, None, item)
                with w.when(self._may_grow(op, event)):
                    self.insert(w, op, event)
                self.put_out(w, op, event)

    def _extended(self, w: Writer, op: Iteration, chain: Composite | None, item: Composite, made: Composite) -> None:
        """A chain with one more item: a node that points to the chain without it. It is put out, and waits for more."""
        k = op.number
        if k in self.chained:
            table = self.nodes[op]
            if self.checked:
                table.ensure(w)
            before = "EMPTY" if chain is None else chain.read(Chain(k))
            # Counted here, because the chain may be discarded before anything else of it is stored.
            w(
                f"n{k} = {table.top}",
                f"{table.top} += {table.size}",
                "made += 1",
                f"{table.name}[n{k} + PREV] = {before}",
            )
            length = "1" if chain is None else f"{table.name}[{table.name}[n{k} + PREV] + LENGTH] + 1"
            w(f"{table.name}[n{k} + LENGTH] = {length}")
            table.fill(w, f"n{k}", item)
        w(f"{self.builder.register(f'made{k}')} += 1")
        event = self.with_history(w, op, made, chain, item)
        with w.when(self._may_grow(op, event)):
            self.insert(w, op, event)
        self.put_out(w, op, event)

    def _may_grow(self, op: Iteration, event: Composite) -> list[str]:
        """The conditions that longer chains can be detected: `v1_length0 < integers[2]`. A filter on the number of
        events that a chain has reached excludes all longer ones."""
        found = self._is_awaited(op, event)
        if not isinstance(op.parent, Selection):
            return found
        for predicate in op.parent.keep:
            limit = most_events(predicate)
            if limit is not None and limit[0] in op.item.variables and limit[0] not in op.item.many | op.item.optional:
                length = event.read(Value("length", self.values.component[limit[0]]))
                found.append(f"{length} < {self.builder.constants.integer(limit[1])}")
        return found

    def _is_awaited(self, op: Iteration, event: Composite) -> list[str]:
        """Of an iteration that can only be a successor, the conditions that instances wait: `live2 > 0`, or if all
        items of a chain have one key, that some wait with that key. Instances that wait later are too late for it."""
        below: Operator = op
        above = op.parent
        while isinstance(above, Selection | Union | Timer) or (isinstance(above, Exception_) and below is above.item):
            below, above = above, above.parent
        if not isinstance(above, Next) or below is not above.right:
            return []
        indexes, table = self._of(self.tables[above]), self.tables[above]
        parts = indexes.visits[indexes.visiting[0]][0][1]
        if indexes.is_keyed and len(indexes.visiting) == 1 and {part.expr for part in parts} <= self._constant_in(op):
            key, known = self._key_of(parts, event)
            return [*known, f"{table.index_name(0)}[slot_for({table.index_name(0)}, {key}) + 1] >= 0"]
        return [f"live{above.number} > 0"]

    def _constant_in(self, op: Iteration) -> set[Expr]:
        """The attributes that φ requires to be the same in all items of a chain: `FILTER(a.k = PREV(a.k))`."""
        found: set[Expr] = set()
        for link in links_of(op.skip, op, op.item, self.values, iterates=True):
            before, now = link.waiting.expr, link.awaited.expr
            if not isinstance(before, Attr) or not isinstance(now, Attr) or now.var in op.item.optional:
                continue
            if (before.var, before.name) == (now.var, now.name):
                found.add(now)
        return found

    # --- timers -------------------------------------------------------------------------------------------------------

    def _start_timer(self, w: Writer, op: Timer, event: Composite) -> None:
        """`f1[f1_top] = t + integers[1]`. Ends never decrease, so timers fire in the order in which they start."""
        table = self.fifos[op]
        if self.checked:
            table.ensure(w)
        delay = self.builder.constants.integer(op.delay)
        w(f"{table.name}[{table.top}] = {event.read(ENDS)} + {delay}")
        table.fill(w, table.top, event)
        w(f"wake = min(wake, {table.name}[{table.top}])", f"{table.top} += {table.size}", "made += 1")

    def fire(self, w: Writer, op: Timer) -> None:
        """The timers that are due are composite events of their own:

        while f1_first < f1_top and f1[f1_first] <= tick:
            ...
            f1_first += 5
        """
        table, first = self.fifos[op], self.builder.register(f"{self.fifos[op].name}_first")
        k = op.number
        with w.block(f"while {first} < {table.top} and {table.name}[{first}] <= tick:"):
            w(f"g{k} = {first}", f"{first} += {table.size}", f"d{k} = {table.name}[g{k}]")
            item = table.composite(op.item, f"g{k}", "0")
            event = after_a_while(op, item, f"d{k}", self.points)
            self.put_out(w, op, self.with_history(w, op, event, item))

    # --- exceptions ---------------------------------------------------------------------------------------------------

    def _remember_cancel(self, w: Writer, op: Cancelled, event: Composite) -> None:
        table, k = self.cancels[op], op.number
        if table.is_shared:
            self._link_in_all(w, op, table, event, event, f"x{k}", f"y{k}")
            return
        key, known = self._key(w, event, self._stored(table, 0, event), f"{k}_0")
        with w.when(known):
            if not self._walks(op):
                self._latest_cancel(w, op, event, key)
                return
            self._fill(w, table, f"x{k}", event)
            self._link(w, op, table, f"x{k}", key, f"y{k}", 0)
            w("made += 1")

    def _latest_cancel(self, w: Writer, op: Cancelled, event: Composite, key: str | None) -> None:
        """Only the latest event of a key can cancel, and the one before it if the latest is simultaneous:

        if c1[x1 + END] < t:
            c1[x1 + C1_PRIOR] = c1[x1 + END]
            c1[x1 + END] = t
        """
        table, k = self.cancels[op], op.number
        prior = table.own.index("prior")
        self._head(w, op, key, 0)
        with w.block(f"if x{k} < 0:"):
            self._allocate(w, table, f"x{k}")
            w(f"{table.name}[x{k} + DONE] = NEVER", f"{table.name}[x{k} + END] = {event.read(ENDS)}")
            w(f"{table.name}[x{k} + {prior}] = -{LATE}")
            self._link(w, op, table, f"x{k}", key, f"y{k}", 0)
            w("made += 1")
        with w.block(f"elif {table.name}[x{k} + END] < {event.read(ENDS)}:"):
            w(
                f"{table.name}[x{k} + {prior}] = {table.name}[x{k} + END]",
                f"{table.name}[x{k} + END] = {event.read(ENDS)}",
            )

    def _head(self, w: Writer, op: Cancelled, key: str | None, number: int) -> None:
        table, k = self.cancels[op], op.number
        if key is None:
            w(f"x{k} = {table.head(number)} - 1")
        else:
            w(f"x{k} = {table.index_name(number)}[slot_for({table.index_name(number)}, {key}) + 1]")

    def _unless_cancelled(self, w: Writer, op: Cancelled, event: Composite, edge: str, first: Composite) -> None:
        """Whether what cancels occurred strictly between the start (or the end of the first operand) and the end:

        cancelled1 = False
        x1 = c1_index[slot_for(c1_index, column0[e]) + 1]
        while x1 >= 0 and c1[x1 + END] > w1[i1 + W1_STARTS]:
            ...
        """
        assert op.cancel is not None
        table, k = self.cancels[op], op.number
        since, ends = first.read(edge), event.read(ENDS)
        w(f"cancelled{k} = False")
        for visit, (number, choices) in enumerate(self.visited(table, event)):
            with w.when([f"not cancelled{k}"] if visit else []):
                key, known = self._key(w, event, choices, f"{k}_{visit}")
                with w.when(known):
                    self._head(w, op, key, number)
                    if self._walks(op):
                        self._seek_cancel(w, op, event, since, number)
                    else:
                        prior = table.own.index("prior")
                        with w.block(f"if x{k} >= 0:"):
                            w(f"z{k} = {table.name}[x{k} + END]")
                            with w.block(f"if z{k} >= {ends}:"):
                                w(f"z{k} = {table.name}[x{k} + {prior}]")
                            w(f"cancelled{k} = z{k} > {since}")

    def _seek_cancel(self, w: Writer, op: Cancelled, event: Composite, since: str, number: int) -> None:
        assert op.cancel is not None
        table, k = self.cancels[op], op.number
        decided = self._of(table).decided
        with w.block(f"while x{k} >= 0 and {table.name}[x{k} + END] > {since}:"):
            with w.block(f"if {table.name}[x{k} + END] < {event.read(ENDS)}:"):
                other = table.composite(op.cancel, f"x{k}", f"{table.name}[x{k} + END]")
                tests = self.conditions.write(w, [p for p in op.when if p not in decided], Sides(event, other))
                with w.block(f"if {' and '.join(tests)}:") if tests else nullcontext():
                    w(f"cancelled{k} = True", "break")
            w(f"x{k} = {table.name}[x{k} + {table.field('next', number)}]")


def _aggregates(predicates: Sequence[Expr]) -> bool:
    return any(isinstance(node, Aggregate) for predicate in predicates for node in walk_expr(predicate))


def _is_exclusive(awaited: Operator) -> bool:
    """Whether an event can be only one of the leaves."""
    classes = [leaf.event_class.types for leaf in leaves_of(awaited)]
    names = [name for types in classes for name in types]
    return len(classes) == 1 or (all(classes) and len(names) == len(set(names)))
