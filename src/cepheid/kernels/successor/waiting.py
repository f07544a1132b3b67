"""The tables of a plan: the instances that wait for a successor, their keys and deadlines, and histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import key_of
from cepheid.expr import At, Expr
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import ENDS, HISTORY, LATE, STARTS, Composite, Field, Values
from cepheid.kernels.successor.conditions import Conditions, Link, links_of, waits_for
from cepheid.kernels.successor.operators import (
    Exception_,
    Iteration,
    Leaf,
    Next,
    Operator,
    Timer,
    Waiting,
    binds,
    bounds_of,
    last_variables,
    lifetime,
)
from cepheid.kernels.successor.tables import Table
from cepheid.physical import Plan

Cancelled = Exception_ | Next


class Tables:
    """The operators of a plan with their tables. `checked` says whether the source being written grows arrays itself;
    in the loop over events there is always room."""

    def __init__(self, plan: Plan, builder: KernelBuilder, root: Operator) -> None:
        self.plan = plan
        self.builder = builder
        self.root = root
        self.values = Values(plan)
        self.points = 2 if plan.has_durations else 1
        self.conditions = Conditions(self.values, builder.constants, self.node_item)
        self.checked = False
        self.operators = list(root.walk())
        self.waiting = [op for op in self.operators if isinstance(op, Waiting)]
        self.links = {op: self._links(op) for op in self.waiting}
        self.deadlines = {op: list(self._deadlines(op)) for op in self.waiting}
        self.lifetimes = {op: None if self.deadlines[op] else lifetime(op, plan.has_durations) for op in self.waiting}
        """The ticks after its start after which an instance can be dropped, where no variable has a deadline."""
        self.cancel_links = {
            op: links_of(op.when, op if isinstance(op, Next) else op.item, op.cancel, self.values)
            for op in self.operators
            if isinstance(op, Exception_ | Next) and op.cancel is not None
        }
        self.tables: dict[Waiting, Table] = {}
        for op in self.waiting:
            own = ["next", "done", "end"] + (["key"] if self.links[op] else [])
            self.tables[op] = self._table(f"w{op.number}", own)
        self.queues = {op: self._table(f"q{op.number}", ()) for op in self.waiting if not op.is_prompt}
        self.fifos = {op: self._table(f"f{op.number}", ("due",)) for op in self.operators if isinstance(op, Timer)}
        self.nodes = {
            op: self._table(f"node{op.number}", ("prev", "length")) for op in self.waiting if isinstance(op, Iteration)
        }
        self.cancels = {
            op: self._table(
                f"c{op.number}",
                ("next", "done", "end", *(["key"] if links else []), *([] if self._walks(op) else ["prior"])),
            )
            for op, links in self.cancel_links.items()
        }
        self.found = self._table("found", ())
        self.chained: set[int] = set()
        """The iterations whose chains are read, so that they have nodes."""
        self.histories: set[int] = set()
        """The operators whose histories are read as lists."""
        self.chain_values: dict[Iteration, dict[Field, None]] = {op: {} for op in self.nodes}

    def _table(self, name: str, own: Sequence[str]) -> Table:
        return Table(name, tuple(own), self.values, self.builder.register)

    def shape(self) -> tuple[object, ...]:
        """What the last source has read; if it has not changed, the source is complete."""
        tables = [*self.tables.values(), *self.queues.values(), *self.fifos.values(), *self.nodes.values()]
        tables += [*self.cancels.values(), self.found]
        fields = [tuple(table.fields) for table in tables]
        values = [tuple(v) for v in self.chain_values.values()]
        return (fields, values, frozenset(self.chained), frozenset(self.histories))

    def _links(self, op: Waiting) -> list[Link]:
        return links_of(op.skip, waits_for(op), op.awaited, self.values, isinstance(op, Iteration))

    def _walks(self, op: Cancelled) -> bool:
        """Whether λ is tested on each event that may cancel; otherwise the latest one of its key decides."""
        return len(op.when) > len(decided_by(self.cancel_links[op]))

    def _deadlines(self, op: Waiting) -> list[tuple[str, int]]:
        """OCCURS WITHIN: the variables that wait in the operator's table, each with the ticks after which whatever it
        waits for comes too late. What must follow later also comes later, so conditions of the operators above count
        too, as far as this operator's events are not themselves awaited there."""
        waiting = waits_for(op)
        last = last_variables(op.awaited)
        found: list[tuple[str, int]] = []
        for predicate in (*op.skip, *op.keep):
            for one, other, ticks in bounds_of(predicate):
                if one in waiting.variables and other in last:
                    found.append((one, ticks))
        if isinstance(op, Iteration):
            return found
        below: Operator = op
        above = op.parent
        while above is not None and not (
            (isinstance(above, Next) and above.left is not below)
            or isinstance(above, Iteration)
            or (isinstance(above, Exception_) and above.item is not below)
        ):
            if isinstance(above, Next):
                for predicate in (*above.skip, *above.keep):
                    for one, other, ticks in bounds_of(predicate):
                        if one in waiting.variables and binds(above.right, other):
                            found.append((one, ticks))
            below, above = above, above.parent
        return found

    def node_item(self, op: Iteration, node: str) -> Composite:
        """The item in a node of an iteration."""
        self.chained.add(op.number)
        table = self.nodes[op]
        item = table.composite(op.item, node)
        return item.reading({"before": f"{table.name}[{node} + PREV]"})

    # --- instances ----------------------------------------------------------------------------------------------------

    def insert(self, w: Writer, op: Waiting, event: Composite) -> None:
        """Let a composite event wait for its successor:

        i1 = w1_top if w1_free == EMPTY else w1_free
        w1[i1 + DONE] = NEVER
        w1[i1 + W1_ROW0] = first + e
        s1 = slot_for(index1, column0[e])
        w1[i1 + NEXT] = max(index1[s1 + 1], EMPTY)
        index1[s1 + 1] = i1
        """
        table, k = self.tables[op], op.number
        key, known = self._key(op, event, "waiting")
        with w.when(known):
            self._allocate(w, table, f"j{k}")
            w(f"{table.name}[j{k} + DONE] = NEVER", f"{table.name}[j{k} + END] = {event.read(ENDS)}")
            table.fill(w, f"j{k}", self._with_deadline(op, event))
            self._link(w, op, table, f"j{k}", key, f"p{k}")
            w(f"live{k} += 1", "made += 1", "partial_matches += 1")
            if isinstance(op, Iteration):
                # The chain may be in the list that is being visited, before the instance at hand.
                same = f" and p{k} == s{k}" if key is not None else ""
                with w.block(f"if before{k} == EMPTY{same}:"):
                    w(f"before{k} = j{k}")

    def _allocate(self, w: Writer, table: Table, name: str) -> None:
        free = self.builder.register(f"{table.name}_free")
        with w.block(f"if {free} > 0:"):
            w(f"{name} = {free} - 1", f"{free} = {table.name}[{name} + NEXT] + 1")
        with w.block("else:"):
            if self.checked:
                table.ensure(w)
            w(f"{name} = {table.top}", f"{table.top} += {table.size}")

    def _link(self, w: Writer, op: Operator, table: Table, name: str, key: str | None, slot: str) -> None:
        """Put a record at the head of the list of its key. Nothing moves the index of an iteration, whose lists may be
        being visited."""
        index, used = f"{table.name}_index", f"{table.name}_used"
        if key is None:
            head = self.builder.register(f"{table.name}_head")
            w(f"{table.name}[{name} + NEXT] = {head} - 1", f"{head} = {name} + 1")
            return
        self.builder.register(used)
        if self.checked and not isinstance(op, Iteration):
            self.widen(w, table, "1")
        w(f"{table.name}[{name} + KEY] = {key}", f"{slot} = slot_for({index}, {table.name}[{name} + KEY])")
        w(f"{used} += int({index}[{slot} + 1] == EMPTY)")
        w(f"{table.name}[{name} + NEXT] = max({index}[{slot} + 1], EMPTY)")
        w(f"{index}[{slot}] = {table.name}[{name} + KEY]", f"{index}[{slot} + 1] = {name}")

    def widen(self, w: Writer, table: Table, more: str) -> None:
        """`w1_index, w1_used = widened(w1_index, w1_used + 1)`, if there is no room for so many keys."""
        name = table.name
        with w.block(f"if 4 * ({name}_used + {more}) > {name}_index.shape[0]:"):
            w(f"{name}_index, {name}_used = widened({name}_index, {name}_used + {more})")

    def expires(self, op: Waiting) -> bool:
        """Whether instances can be dropped after some time."""
        return bool(self.deadlines[op]) or self.lifetimes[op] is not None

    def _with_deadline(self, op: Waiting, event: Composite) -> Composite:
        if not self.expires(op):
            return event
        self.tables[op].offset("until")
        ticks = self.lifetimes[op]
        if ticks is not None:
            return event.reading({"until": f"{event.read(STARTS)} + {self.builder.constants.integer(ticks)}"})
        component = self.values.component
        times = [f"{event.read(Value('first_time', component[var]))} + {self.builder.constants.integer(ticks)}"
                 for var, ticks in self.deadlines[op] if var not in event.unbound]  # fmt: skip
        until = times[-1] if times else f"{LATE}"
        for time in times[:-1]:
            until = f"min({time}, {until})"
        return event.reading({"until": until})

    def _key(self, op: Waiting, event: Composite, side: str) -> tuple[str | None, list[str]]:
        """The key of an instance or of what it waits for, and the conditions that it is not null."""
        return self._key_of(self.links[op], event, side)

    def _key_of(self, links: Sequence[Link], event: Composite, side: str) -> tuple[str | None, list[str]]:
        if not links:
            return None, []
        parts = []
        for link in links:
            attr = link.waiting if side == "waiting" else link.awaited
            which = "first" if attr.at is At.FIRST and attr.var in event.operator.many else "last"
            parts.append((self.values.term(attr, which, event, False), link.fit.as_float))
        key, known = key_of(parts)
        return key, [part for part in known.split(" and ") if part != "True"]

    # --- histories ----------------------------------------------------------------------------------------------------

    def with_history(self, w: Writer, op: Operator, event: Composite, *parts: Composite | None) -> Composite:
        """The composite with its history as a list, if an operator above compares it:

        history_top = concatenated(history, history_top, w1[i1 + W1_HISTORY], h2)
        h1 = history_top - 2
        """
        before = event.read
        k = op.number

        def read(field: Field) -> str:
            if field != HISTORY:
                return before(field)
            self.histories.add(k)
            return f"h{k}"

        if k in self.histories:
            top = self.builder.register("history_top")
            lists = [part.read(HISTORY) for part in parts if part is not None]
            if isinstance(op, Leaf):
                self._room(w, f"{2 * self.points}")
                w(f"h{k} = EMPTY")
                for source in [before(STARTS), before(ENDS)][2 - self.points :]:
                    self._add_point(w, f"h{k}", source, f"h{k}")
            elif isinstance(op, Timer):
                self._room(w, "2")
                self._add_point(w, f"h{k}", before(ENDS), lists[0])
            elif len(lists) == 1:
                w(f"h{k} = {lists[0]}")
            else:
                self._room(w, f"2 * history_length(history, {lists[1]})")
                w(f"{top} = concatenated(history, {top}, {lists[0]}, {lists[1]})", f"h{k} = {top} - 2")
        return replace(event, read=read)

    def _add_point(self, w: Writer, name: str, time: str, before: str) -> None:
        """`history[history_top] = h1`, `history[history_top + POINT] = t`, `h1 = history_top`"""
        top = self.builder.register("history_top")
        w(f"history[{top}] = {before}", f"history[{top} + POINT] = {time}", f"{name} = {top}", f"{top} += 2")

    def _room(self, w: Writer, points: str) -> None:
        if self.checked:
            w(f"history = grown(history, history_top + {points})")


def decided_by(links: Sequence[Link]) -> list[Expr]:
    """The predicates that hold wherever the keys are equal."""
    return [link.predicate for link in links if len(links) == 1 and link.decides]
