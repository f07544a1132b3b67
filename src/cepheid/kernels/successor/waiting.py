"""The tables of a plan: the instances that wait for a successor, their keys and deadlines, and histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import Term, mixed, value
from cepheid.events import HISTORY as HISTORY_COLUMN
from cepheid.expr import Aggregate, At, Attr
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import ENDS, HISTORY, LATE, LATEST_START, STARTS, Composite, Field, Values
from cepheid.kernels.successor.conditions import Conditions, waits_for
from cepheid.kernels.successor.links import (
    Alternative,
    Indexes,
    Parts,
    as_key,
    indexes_of,
    indexes_of_parts,
    links_of,
    possible,
)
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
Visit = tuple[int, list[tuple[list[str], Parts]]]
"""The number of an index, and the keys of a visitor in it, each with the conditions that it is the one."""
GROUP = ("edge", "count", "total", "latest", "first")
"""The fields of a node of chains in groups (`groups`)."""


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
        self.deadlines = {op: list(self._deadlines(op)) for op in self.waiting}
        self.lifetimes = {op: None if self.deadlines[op] else lifetime(op, plan.has_durations) for op in self.waiting}
        """The ticks after its start after which an instance can be dropped, where no variable has a deadline."""
        instance = ("next", "done", "end")
        self.tables = {op: self._table(f"w{op.number}", instance, self._indexes(op)) for op in self.waiting}
        self.queues = {op: self._table(f"q{op.number}", ()) for op in self.waiting if not op.is_prompt}
        self.fifos = {op: self._table(f"f{op.number}", ("due",)) for op in self.operators if isinstance(op, Timer)}
        self.nodes = {
            op: self._table(f"node{op.number}", ("prev", "length")) for op in self.waiting if isinstance(op, Iteration)
        }
        self.cancels = {
            op: self._table(f"c{op.number}", instance, self._cancel_indexes(op, op.cancel))
            for op in self.operators
            if isinstance(op, Exception_ | Next) and op.cancel is not None
        }
        for op, table in self.cancels.items():
            table.own += () if self._walks(op) else ("prior",)
        self.found = self._table("found", ())
        self.edges = {op: self._table(f"edge{op.number}", ("from", "more")) for op in self.nodes}
        self.single: set[int] = set()
        """The iterations whose chains do not wait in groups."""
        self.chained: set[int] = set()
        """The iterations whose chains are read, so that they have nodes."""
        self.histories: set[int] = set()
        """The operators whose histories are read as lists."""
        self.chain_values: dict[Iteration, dict[Field, None]] = {op: {} for op in self.nodes}

    def _table(self, name: str, own: Sequence[str], indexes: Indexes | None = None) -> Table:
        return Table(name, tuple(own), self.values, self.builder.register, indexes)

    def is_grouped(self, op: Operator) -> bool:
        return isinstance(op, Iteration) and op.number not in self.single

    def groups_in(self, op: Operator) -> list[Iteration]:
        return [node for node in op.walk() if isinstance(node, Iteration) and self.is_grouped(node)]

    def groups_of(self, op: Operator) -> list[Iteration]:
        """Those whose chains an operator puts out: what cancels is no part of its composite events."""
        return [node for node in self.groups_in(op) if set(node.variables) <= set(op.variables)]

    def forget(self) -> None:
        """Before the source is written anew: nothing has been read."""
        for table in [*self.tables.values(), *self.queues.values(), *self.fifos.values(), *self.nodes.values(),
                      *self.cancels.values(), self.found]:  # fmt: skip
            table.fields.clear()
        for values in self.chain_values.values():
            values.clear()
        self.chained.clear()
        self.histories.clear()
        for op, table in self.nodes.items():
            table.own = GROUP if self.is_grouped(op) else ("prev", "length")

    def shape(self) -> tuple[object, ...]:
        """What the last source has read; if it has not changed, the source is complete."""
        tables = [*self.tables.values(), *self.queues.values(), *self.fifos.values(), *self.nodes.values()]
        tables += [*self.cancels.values(), self.found]
        fields = [tuple(table.fields) for table in tables]
        values = [tuple(v) for v in self.chain_values.values()]
        return (fields, values, frozenset(self.chained), frozenset(self.histories))

    def _indexes(self, op: Waiting) -> Indexes:
        """The indexes of the instances of an operator, by φ's equalities."""
        waiting, iterates = waits_for(op), isinstance(op, Iteration)
        links = links_of(op.skip, waiting, op.awaited, self.values, iterates)
        parts = None if links or iterates else indexes_of_parts(op.skip, waiting, op.awaited, self.values)
        return parts or indexes_of(links, waiting, op.awaited, iterates=iterates)

    def _cancel_indexes(self, op: Cancelled, cancel: Operator) -> Indexes:
        """The indexes of the events that may cancel, by λ's equalities."""
        item = op if isinstance(op, Next) else op.item
        links = links_of(op.when, item, cancel, self.values)
        parts = None if links else indexes_of_parts(op.when, item, cancel, self.values, stores_awaited=True)
        return parts or indexes_of(links, item, cancel, stores_awaited=True)

    def _walks(self, op: Cancelled) -> bool:
        """Whether λ is tested on each event that may cancel; otherwise the latest one of its key decides."""
        indexes = self.cancels[op].indexes
        assert indexes is not None
        return len(indexes.indexes) > 1 or any(predicate not in indexes.decided for predicate in op.when)

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
        held = self._with_deadline(op, event)
        if table.is_shared:
            self._link_in_all(w, op, table, event, held, f"j{k}", f"p{k}")
            return
        key, known = self._key(w, event, self._stored(table, 0, event), f"{k}_0")
        with w.when(known):
            self._fill(w, table, f"j{k}", held)
            self._link(w, op, table, f"j{k}", key, f"p{k}", 0)
            w(f"live{k} += 1", "made += 1", "partial_matches += 1")
            if isinstance(op, Iteration):
                self._after_insertion(w, op, key, 0)

    def _link_in_all(
        self, w: Writer, op: Operator, table: Table, event: Composite, held: Composite, name: str, slot: str
    ) -> None:
        """Put an event into a record (as `held`) and into the lists of all indexes whose keys it has:

        w1[j1 + NEXT] = ABSENT
        if column0[e] != NULL_INT:
            w1[j1 + NEXT] = max(w1_index[p1 + 1], EMPTY)
        """
        self._fill(w, table, name, held)
        w(*(f"{table.name}[{name} + {link}] = ABSENT" for link in self._link_fields(table)))
        for number in range(len(self._of(table).indexes)):
            key, known = self._key(w, event, self._stored(table, number, event), f"{op.number}_{number}")
            with w.when(known):
                self._link(w, op, table, name, key, slot, number)
                if isinstance(op, Iteration):
                    self._after_insertion(w, op, key, number)
        self._unless_listed(w, op, table, name)

    def _after_insertion(self, w: Writer, op: Waiting, key: str | None, number: int) -> None:
        """The chain may be in the list that is being visited, before the instance at hand."""
        k = op.number
        same = f" and p{k} == s{k}" if key is not None else ""
        same += f" and at{k} == {number}" if self.tables[op].is_shared else ""
        with w.block(f"if before{k} == EMPTY{same}:"):
            w(f"before{k} = j{k}")

    def _unless_listed(self, w: Writer, op: Operator, table: Table, name: str) -> None:
        """Count an instance, or free it if no event can visit it."""
        k, free = op.number, self.builder.register(f"{table.name}_free")
        links = self._link_fields(table)
        with w.block(f"if {' and '.join(f'{table.name}[{name} + {link}] == ABSENT' for link in links)}:"):
            w(f"{table.name}[{name} + DONE] = FREED")
            w(f"{table.name}[{name} + NEXT] = {free} - 1", f"{free} = {name} + 1")
        with w.block("else:"):
            w(*([f"live{k} += 1", "partial_matches += 1"] if table in self.tables.values() else []), "made += 1")

    def _link_fields(self, table: Table) -> list[str]:
        return [table.field("next", number) for number in range(len(self._of(table).indexes))]

    def _of(self, table: Table) -> Indexes:
        assert table.indexes is not None
        return table.indexes

    def _fill(self, w: Writer, table: Table, name: str, event: Composite) -> None:
        self._allocate(w, table, name)
        w(f"{table.name}[{name} + DONE] = NEVER", f"{table.name}[{name} + END] = {event.read(ENDS)}")
        table.fill(w, name, event)

    def _allocate(self, w: Writer, table: Table, name: str) -> None:
        free = self.builder.register(f"{table.name}_free")
        with w.block(f"if {free} > 0:"):
            w(f"{name} = {free} - 1", f"{free} = {table.name}[{name} + NEXT] + 1")
        with w.block("else:"):
            if self.checked:
                table.ensure(w)
            w(f"{name} = {table.top}", f"{table.top} += {table.size}")

    def _link(self, w: Writer, op: Operator, table: Table, name: str, key: str | None, slot: str, number: int) -> None:
        """Put a record at the head of the list of its key. Nothing moves the index of an iteration, whose lists may be
        being visited."""
        link = table.field("next", number)
        if key is None:
            head = table.head(number)
            w(f"{table.name}[{name} + {link}] = {head} - 1", f"{head} = {name} + 1")
            return
        index, used, field = table.index_name(number), table.used(number), table.field("key", number)
        if self.checked and not isinstance(op, Iteration):
            self.widen(w, table, "1", number)
        w(f"{table.name}[{name} + {field}] = {key}", f"{slot} = slot_for({index}, {table.name}[{name} + {field}])")
        w(f"{used} += int({index}[{slot} + 1] == EMPTY)")
        w(f"{table.name}[{name} + {link}] = max({index}[{slot} + 1], EMPTY)")
        w(f"{index}[{slot}] = {table.name}[{name} + {field}]", f"{index}[{slot} + 1] = {name}")

    def widen(self, w: Writer, table: Table, more: str, number: int) -> None:
        """`w1_index, w1_used = widened(w1_index, w1_used + 1)`, if there is no room for so many keys."""
        index, used = table.index_name(number), table.used(number)
        with w.block(f"if 4 * ({used} + {more}) > {index}.shape[0]:"):
            w(f"{index}, {used} = widened({index}, {used} + {more})")

    def expires(self, op: Waiting) -> bool:
        """Whether instances can be dropped after some time."""
        return bool(self.deadlines[op]) or self.lifetimes[op] is not None

    def _with_deadline(self, op: Waiting, event: Composite) -> Composite:
        if not self.expires(op):
            return event
        self.tables[op].offset("until")
        ticks = self.lifetimes[op]
        if ticks is not None:
            start = LATEST_START if self.groups_of(event.operator) else STARTS
            return event.reading({"until": f"{event.read(start)} + {self.builder.constants.integer(ticks)}"})
        component = self.values.component
        times = [f"{event.read(Value('first_time', component[var]))} + {self.builder.constants.integer(ticks)}"
                 for var, ticks in self.deadlines[op] if var not in event.unbound]  # fmt: skip
        until = times[-1] if times else f"{LATE}"
        for time in times[:-1]:
            until = f"min({time}, {until})"
        return event.reading({"until": until})

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _stored(self, table: Table, number: int, event: Composite) -> list[tuple[list[str], Parts]]:
        """The keys that a record may have in an index, each with the conditions that it is the one."""
        keys, which = dict(self._of(table).indexes[number].keys), "skipped" if self._of(table).by_last else "absent"
        chosen = possible(event, self._of(table).stored)
        return [(self._binds(event, one, told, which), keys[one]) for one, told in chosen if one in keys]

    def visited(self, table: Table, event: Composite) -> list[Visit]:
        """The indexes that a composite has to visit, each with the keys that it may have."""
        indexes = self._of(table)
        if indexes.disjuncts:
            return [(number, [([], parts)]) for number, parts in indexes.visits[indexes.visiting[0]]]
        found: dict[int, list[tuple[list[str], Parts]]] = {}
        for one, told in possible(event, indexes.visiting):
            for number, parts in indexes.visits[one]:
                found.setdefault(number, []).append((self._binds(event, one, told), parts))
        return list(found.items())

    def _binds(
        self, event: Composite, alternative: Alternative, told: Sequence[str], which: str = "absent"
    ) -> list[str]:
        """The conditions that a composite binds the variables of an alternative: `w1[i1 + W1_ABSENT0] == 0`. `which`
        is "skipped" for the last item of a chain."""
        return [
            f"{event.read(Value(which, self.values.component[var]))} {'==' if var in alternative else '!='} 0"
            for var in told
        ]

    def _key(
        self, w: Writer, event: Composite, choices: Sequence[tuple[list[str], Parts]], name: str
    ) -> tuple[str | None, list[str]]:
        """The key of a composite, and the conditions that it has one. Where it may have several, the one that it has
        is computed first:

        has1_0 = False
        if w1[i1 + W1_ABSENT0] == 0:
            has1_0, key1_0 = True, w1[i1 + W1_LAST0_0]
        """
        if len(choices) == 1 and not choices[0][0]:
            return self._key_of(choices[0][1], event)
        is_keyed = any(parts for _, parts in choices)
        w(f"has{name} = False", *([f"key{name} = 0"] if is_keyed else []))
        for number, (tests, parts) in enumerate(choices):
            with w.block(f"{'elif' if number else 'if'} {' and '.join(tests)}:"):
                key, known = self._key_of(parts, event)
                with w.when(known):
                    w(f"has{name} = True", *([f"key{name} = {key}"] if is_keyed else []))
        return f"key{name}" if is_keyed else None, [f"has{name}"]

    def _key_of(self, parts: Parts, event: Composite) -> tuple[str | None, list[str]]:
        """`mixed_key(column0[e], column1[e])`, and the conditions that no part of it is null."""
        if not parts:
            return None, []
        sources, known = [], []
        for part in parts:
            operand = value(part.expr, lambda node: self._part(node, event), self.builder.constants)
            source, conditions = as_key(operand, part)
            sources.append(source)
            known += conditions
        return mixed(sources), list(dict.fromkeys(known))

    def _part(self, node: Attr | Aggregate, event: Composite) -> Term:
        if isinstance(node, Aggregate):
            return self.values.aggregate(node, event.read, None)
        which = "first" if node.at is At.FIRST and node.var in event.operator.many else "last"
        return self.values.term(node, which, event, False)

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
                self._leaf_history(w, op, event)
            elif isinstance(op, Timer):
                self._room(w, f"{2 * self.points}")
                for earlier in [lists[0], f"h{k}"][: self.points]:
                    self._add_point(w, f"h{k}", before(ENDS), earlier)
            elif len(lists) == 1:
                w(f"h{k} = {lists[0]}")
            else:
                self._room(w, f"2 * history_length(history, {lists[1]})")
                w(f"{top} = concatenated(history, {top}, {lists[0]}, {lists[1]})", f"h{k} = {top} - 2")
        return replace(event, read=read)

    def _leaf_history(self, w: Writer, op: Leaf, event: Composite) -> None:
        """The times of the event or, of an event that another query derives, its complete history:

        history_top = recorded(history, history_top, points, column2[e])
        h1 = history_top - 2
        """
        k, top = op.number, self.builder.register("history_top")
        self._room(w, f"{2 * self.points}")
        others = set(op.event_class.types) - self.plan.composite
        at = self.builder.column(HISTORY_COLUMN) if op.lengths is None else ""
        if others or op.lengths is not None:
            with w.when([f"{at} < 0"] if at else []):
                w(f"h{k} = EMPTY")
                for source in [event.read(STARTS), event.read(ENDS)][2 - self.points :]:
                    self._add_point(w, f"h{k}", source, f"h{k}")
        if at:
            with w.when([f"{at} >= 0"] if others else []):
                w(f"{top} = recorded(history, {top}, points, {at})", f"h{k} = {top} - 2")

    def _add_point(self, w: Writer, name: str, time: str, before: str) -> None:
        """`history[history_top] = h1`, `history[history_top + POINT] = t`, `h1 = history_top`"""
        top = self.builder.register("history_top")
        w(f"history[{top}] = {before}", f"history[{top} + POINT] = {time}", f"{name} = {top}", f"{top} += 2")

    def _room(self, w: Writer, points: str) -> None:
        if self.checked:
            w(f"history = grown(history, history_top + {points})")
