"""Skip till any match, with Kleene closure: all partial matches at once, in one compact store (after CORE's tECS).

A run of the automaton is at a component. The values that an edge's formula and all later edges read, the
computation-state vector, decide how it continues. So the runs at one component with the same vector are one *group*,
whatever their number, and a group holds the set of its partial matches in the store. Each edge has a *table* of the
groups that may take it, with the values that it and later edges read; edges that read the same values share a table. If
formulas read single events, or equate values of the event with values of the run, an event visits at most one group in
each table, so its cost does not grow with the number of partial matches.

An event is processed in three phases. *Reading*: for every edge that its mask allows, the groups that it extends are
looked up, and the extended groups are queued. *Negation*: groups whose next gap the event spoils are emptied.
*Writing*: the queued groups are inserted into the tables of the edges that leave the component reached (if the proceed
condition, which reads only past events, holds), and complete matches are reported as *roots* in the store, from which
they are enumerated or summarised on request.

A negation between two events is decided when the negative event occurs if its predicates read earlier components only,
otherwise when the match is complete. A leading negation is decided when the match is complete. For a trailing one,
complete matches wait in a table of their own until the window has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from cepheid import expr as ex
from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import Term, condition
from cepheid.errors import NotAvailable
from cepheid.events import START as START_TICKS
from cepheid.expr import Attr
from cepheid.kernels.any_runs.automaton import Automaton, Edge, Entry, Negation, Route, Table
from cepheid.kernels.any_runs.compact_store import EARLIER, NODE_VALUES, REGISTERS, SINCE, WORDS
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.kernels.any_runs.match_summary import Summary
from cepheid.kernels.exclusion import exclusive
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.physical import Kind, Options, Plan
from cepheid.runtime.kernel import COUNTERS, END_OF_TIME, FREE, Kernel

IMPORTS = """from cepheid.kernels.any_runs.compact_store import (
    BEFORE, GROUPS, LATEST, LOWEST, MARK, NEGATIVES, NEVER, NODES, PENDING, ROW, SET, START, STEP, TIME,
    find_group, group_of, is_alive, next_linked, note_time, put, set_before, with_match, with_root,
)"""


OPTIONS: Options = {}

_BITS = 64
_MOST_EDGES = 256
"""More edges would take too long to compile: components that may be empty have an edge to every later one."""


def kernel(plan: Plan) -> Kernel:
    """The kernel; for non-overlapping output one that chooses among the matches of another without that output."""
    if not plan.query.non_overlapping:
        return _lazy_kernel(plan)
    all_matches = replace(plan.query, non_overlapping=False, output=None, limit=None)
    inner = replace(_lazy_kernel(replace(plan, query=all_matches)), earliest_only=True)
    return exclusive(plan, inner)


def _lazy_kernel(plan: Plan) -> LazyKernel:
    generator = _Generator(plan)
    edges = len(generator.automaton.routes)
    if len(plan.bits) > _BITS or edges > _MOST_EDGES:
        raise NotAvailable(
            f"an automaton of {edges} edges, whose formulas need {len(plan.bits)} bits of an event's mask",
            expected=f"at most {_MOST_EDGES} edges and {_BITS} bits",
            hint="split the query into queries that feed one another",
        )
    return generator.kernel()


class _Generator:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.builder = KernelBuilder(plan, counters=COUNTERS[:4], reserved=REGISTERS - FREE)
        self.constants = self.builder.constants
        self.automaton = automaton = Automaton(plan, self.constants)
        self.vector = automaton.vector
        self.keys = automaton.keys
        self.states = automaton.states
        self.tables = automaton.tables
        self.summary = Summary.of(plan, self.vector.index)
        self.node_stride = NODE_VALUES + len(self.summary.columns) + len(self.summary.nullable)
        self.places = plan.counts_events and bool(plan.key)
        self.by_time = not plan.query.dialect.ordered_by_position
        self.group_stride = WORDS + 1 + max([len(table.values) for table in self.tables] + [len(self.keys)], default=0)
        self.group_stride += max(EARLIER, SINCE) if self.by_time else 0
        self.queue_stride = 2 + max(len(state) for state in self.states)
        self.ring = {n.number: self._ring_columns(n) for n in automaton.negations}
        self.negative_stride = 3 + max((len(columns) for columns in self.ring.values()), default=0)
        self.waiting = [number for number, table in enumerate(self.tables) if table.waits]
        self.constants.needs_ranks |= self.summary.compares_texts
        self._declare()
        self.widths: set[int] = set()

    # --- the state ----------------------------------------------------------------------------------------------------

    def _ring_columns(self, negation: Negation) -> list[str]:
        """The attributes of negative events that are read when a match is complete."""
        names = [
            node.name
            for p in self.automaton.against[negation.step.var]
            for node in ex.walk(p)
            if isinstance(node, Attr) and node.var == negation.step.var
        ]
        flags = [f"{_LACKS}{name}" for name in names if name in self.plan.lacking]
        flags += [f"{_NULL}{name}" for name in names if name in self.plan.nulls]
        starts = [START_TICKS] if self.plan.counts_from_start else []
        return list(dict.fromkeys([*self.keys, *names, *flags, *starts]))

    def _event_word(self, name: str) -> str:
        return self.vector.event_word(self.vector.column[name])

    def _of_negative(self, name: str) -> str:
        """A column of the current negative event: an attribute, or whether its type lacks one or it is null."""
        if name.startswith(_NULL):
            return f"int(not ({self.vector.event_is_known(name.removeprefix(_NULL))}))"
        if not name.startswith(_LACKS):
            return self._event_word(name)
        return f"int({self.vector.lacks(self.vector.column[name.removeprefix(_LACKS)], 'bits')})"

    def _declare(self) -> None:
        """The arrays of the state, in the order of the constants in `lazy_matches`."""
        declare = self.builder.array
        declare("nodes", length=64 * self.node_stride, width=self.node_stride)
        declare("groups", length=16 * self.group_stride, width=self.group_stride)
        declare("heads", length=64, fill=-1)
        declare("negatives", length=self.negative_stride if self.automaton.late else 1)
        for name in ("pending_times", "pending_items", "totals", "order", "unfolded"):
            declare(name, length=1)

    # --- the function -------------------------------------------------------------------------------------------------

    def kernel(self) -> LazyKernel:
        body, finish = Writer(), Writer()
        if self.waiting:
            self._time_passed(body)
        with body.block("for e in range(time.shape[0]):"):
            self._event(body)
        finish("events += time.shape[0]")
        setup = [
            f"words = np.empty({self.group_stride}, np.int64)",
            f"item = np.empty({self.node_stride}, np.int64)",
            f"queue = np.empty({16 * self.queue_stride}, np.int64)",
            "# Typed, so that helpers which take them are compiled once and not anew for each number.",
            "unlinked = np.int64(0)",
            *(f"words{n} = np.int64({n})" for n in sorted(self.widths)),
        ]
        return self.builder.kernel(
            self.builder.source(body, finish, preamble=[IMPORTS], setup=setup, written=None, output="roots"),
            [step.var for step in self.vector.steps],
            has_bounds=any(step.kleene for step in self.vector.steps),
            kind=LazyKernel,
            further={
                "summary": self.summary,
                "node_stride": self.node_stride,
                "group_stride": self.group_stride,
                "negative_stride": self.negative_stride,
                "by_time": self.by_time,
                "expires": self.plan.window is not None,
                "places": self.places,
                "waits": bool(self.waiting),
            },
        )

    def _width(self, values: int) -> str:
        """The number of words of that many values and the table's number: `words3`."""
        self.widths.add(1 + values)
        return f"words{1 + values}"

    def _event(self, w: Writer) -> None:
        w("m = measure[e]", "bits = mask[e]", f"floor = {'LOWEST' if self.plan.window is None else 'm - limit'}")
        if self.waiting and self.plan.window is not None and not self.places:
            self._report_due(w, "pending_times[0] < floor")
        if self.plan.counts_from_start:
            self._start_of_event(w)
        with w.block(f"if bits & np.uint64({self.builder.bits_of(self.plan.steps)}) == 0:"):
            w("dropped_by_mask += 1", "continue")
        if self.keys:
            with w.block(f"if not ({' and '.join(self.vector.event_is_known(name) for name in self.keys)}):"):
                w("continue")
        w("row = first + e", "queued = 0")
        self._read(w)
        for negation in self.automaton.negations:
            self._negative_event(w, negation)
        self._write(w)

    def _start_of_event(self, w: Writer) -> None:
        """The start of an event with duration. One that is longer than the window is no component of a match, though it
        may be a negated one:

        began = column1[e]
        if began < floor:
            bits &= np.uint64(18446744073709551612)
        """
        positive = self.builder.bits_of([step for step in self.plan.steps if not step.negated])
        w(f"began = {self._event_word(START_TICKS)}")
        with w.block("if began < floor:"):
            w(f"bits &= np.uint64({~positive & (1 << 64) - 1})")

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, w: Writer) -> None:
        for target in range(self.automaton.end):
            # An insertion costs one node if the new item starts as late as the set: so takes come first.
            for takes in (True, False):
                routes = [
                    (number, route)
                    for number, route in enumerate(self.automaton.routes)
                    if route.edge.target == target and route.edge.takes == takes and not route.waits
                ]
                if not routes:
                    continue
                with w.block(f"if bits & np.uint64({1 << routes[0][1].bit}):  # {_named(target, takes)}"):
                    for number, route in routes:
                        if route.edge.starts:
                            self._start(w, route)
                        else:
                            self._extend(w, route, self.automaton.table_of[number])

    def _start(self, w: Writer, route: Route) -> None:
        read = self.vector.reader(NOWHERE, _no_words, event=route.edge.target)
        tests = [condition(p, read, self.constants) for p in (*route.entry.predicates, *route.tests)]
        with w.when(tests):
            for negation in self.automaton.leading:
                if route.edge.crosses(negation.after):
                    self._find_lead(w, negation)
            self._enqueue(w, route.edge, "EMPTY", _no_words)

    def _find_lead(self, w: Writer, negation: Negation) -> None:
        """The measure of the latest event of a leading negation, if it is in the window:

        lead0 = NEVER
        g = find_group(groups, heads, words, words1)
        """
        lead = f"lead{negation.number}"
        self._fill_words(w, self._lead_number(negation), [self._event_word(name) for name in self.keys])
        w(f"{lead} = NEVER", f"g = find_group(groups, heads, words, {self._width(len(self.keys))})")
        with w.block(f"if g != EMPTY and groups[g * {self.group_stride} + LATEST] >= floor:"):
            w(f"{lead} = groups[g * {self.group_stride} + LATEST]")

    def _lead_number(self, negation: Negation) -> int:
        return len(self.tables) + negation.number

    def _extend(self, w: Writer, route: Route, number: int) -> None:
        """Queue the groups of an edge's table, extended by the event:

        before = set_before(groups, 9, g, time[e])
        if is_alive(nodes, item.shape[0], before, floor):
            queue[q + 1] = before
        """
        table = self.tables[number]
        equal = dict(self.automaton.equalities(route))
        # A value that must equal several attributes is looked up by one of them and compared with the others.
        tests = [
            p
            for p in route.tests
            if (pair := self.automaton.equality(p, route.edge)) is None or equal[pair[0]] != pair[1]
        ]
        known = [self.vector.event_is_known(name) for value, name in equal.items() if value.what != "key"]

        def words(value: Value) -> str:
            return f"groups[at + {WORDS + 1 + table.values.index(value)}]"

        read = self.vector.reader(route.edge.source, words, event=route.edge.target)
        conditions = [condition(p, read, self.constants) for p in tests]
        attributes = [equal[value] for value in table.indexed]
        before = "before" if self.by_time else "groups[at + SET]"
        conditions_of_group = [f"is_alive(nodes, item.shape[0], {before}, floor)"]
        nulls = [replace(value, what=f"{value.what}_null") for value in table.indexed]
        conditions_of_group += [f"{words(value)} == 0" for value in nulls if value in table.values]
        with w.when(known), self._each_group(w, number, attributes):
            if self.by_time:
                w(f"before = set_before(groups, {self.group_stride}, g, time[e])")
            with w.when(conditions_of_group):
                if conditions:
                    w(f"predicates += {len(conditions)}")
                with w.when(conditions):
                    self._enqueue(w, route.edge, before, words)

    @contextmanager
    def _each_group(self, w: Writer, number: int, attributes: Sequence[str]) -> Iterator[None]:
        """A block for each group of a table whose indexed values are these attributes of the event, and that has
        sequences in the window; one group at most where the table has no other values:

        g = find_group(groups, heads, words, words2)
        if g != EMPTY:
            at = g * 9
        """
        others, width = self.tables[number].others, self._width(len(attributes))
        self._fill_words(w, number, [self._event_word(name) for name in attributes])
        # Positions in different partitions tell nothing: a group may have expired for an event of another one only.
        expired = "floor" if not self.places or self._is_of_one_partition(number, attributes) else "LOWEST"
        following = f"next_linked(groups, heads, nodes, item.shape[0], words, {width}, {{}}, {expired})"
        w(f"g = {following.format('EMPTY') if others else f'find_group(groups, heads, words, {width})'}")
        with w.block("while g != EMPTY:" if others else "if g != EMPTY:"):
            w(f"at = g * {self.group_stride}")
            yield
            if others:
                w(f"g = {following.format('g')}")

    def _is_of_one_partition(self, number: int, attributes: Sequence[str]) -> bool:
        """Whether an event finds groups of its own partition only."""
        named = zip(self.tables[number].indexed, attributes, strict=True)
        return set(self.plan.key) <= {name for value, name in named if self.vector.names[value.column] == name}

    def _fill_words(self, w: Writer, number: int, values: Sequence[str]) -> None:
        """`words[0] = 2; words[1] = column0[e]`: the number of a table, and values."""
        w("; ".join([f"words[0] = {number}", *(f"words[{i}] = {value}" for i, value in enumerate(values, 1))]))

    def _enqueue(self, w: Writer, edge: Edge, before: str, old: Source) -> None:
        """Queue a group that takes an edge: the component reached, the set before the event, and the words:

        q = queued * 4
        queue[q] = 1
        queue[q + 1] = groups[at + SET]
        """
        stride = self.queue_stride
        w(f"queue = grown(queue, (queued + 1) * {stride})", f"q = queued * {stride}")
        w(f"queue[q] = {edge.target}", f"queue[q + 1] = {before}", "queued += 1")
        for number, value in enumerate(self.states[edge.target]):
            w(f"queue[q + {2 + number}] = {self.vector.word(value, edge, old)}")

    # --- negation -----------------------------------------------------------------------------------------------------

    def _negative_event(self, w: Writer, negation: Negation) -> None:
        tables = [number for number, table in enumerate(self.tables) if negation.number in table.spoilt_by]
        with w.block(f"if bits & np.uint64({1 << negation.step.begin}):  # negated, on bit {negation.step.begin}"):
            for number in tables:
                self._spoil(w, negation, number)
            if negation in self.automaton.leading:
                self._fill_words(w, self._lead_number(negation), [self._event_word(name) for name in self.keys])
                width = self._width(len(self.keys))
                w(f"groups, heads, g = group_of(groups, heads, reg, words, {width}, unlinked)")
                marked, latest = f"groups[g * {self.group_stride} + SET]", f"groups[g * {self.group_stride} + LATEST]"
                if self.plan.counts_from_start:
                    w(f"{latest} = max({latest}, began) if {marked} == MARK else began", f"{marked} = MARK")
                else:
                    w(f"{marked} = MARK", f"{latest} = m")
            if negation in self.automaton.late:
                w(f"k = reg[NEGATIVES] * {self.negative_stride}", "reg[NEGATIVES] += 1")
                w(f"negatives = grown(negatives, k + {self.negative_stride})")
                w(f"negatives[k] = {negation.number}", "negatives[k + 1] = row", "negatives[k + 2] = m")
                for number, name in enumerate(self.ring[negation.number]):
                    w(f"negatives[k + {3 + number}] = {self._of_negative(name)}")
            if not tables and negation not in self.automaton.leading and negation not in self.automaton.late:
                w("pass")

    def _spoil(self, w: Writer, negation: Negation, number: int) -> None:
        """Empty the groups whose next gap the event is in:

        if groups[at + 6] == 0 and (groups[at + 8] < column1[e]):
            groups[at + SET] = EMPTY
        """
        table = self.tables[number]
        linked = len(table.indexed) == len(self.keys)

        def words(value: Value) -> str:
            return f"groups[at + {WORDS + 1 + table.values.index(value)}]"

        read = self.vector.reader(table.at, words, negative=self.vector.event_term)
        conditions = [condition(p, read, self.constants) for p in self.automaton.against[negation.step.var]]
        if table.waits and self.places:  # its window may have passed
            conditions.append(f"{words(Value('start'))} >= floor")
        if linked:
            attributes = [self.vector.names[value.column] for value in table.indexed]
            with self._each_group(w, number, attributes), w.when(conditions):
                w("groups[at + SET] = EMPTY")
            return
        equal = [f"{words(v)} == {self.vector.event_word(v.column)}" for v in table.values if v.what == "key"]
        with w.block("for g in range(reg[GROUPS]):"):
            w(f"at = g * {self.group_stride}")
            with w.when([f"groups[at + {WORDS}] == {number}", *equal, *conditions]):
                w("groups[at + SET] = EMPTY")

    def _search_negative(self, w: Writer, negation: Negation, at: int, words: Source) -> None:
        """Whether a negative event spoils a complete match, from the latest one backwards:

        while not spoiled and k >= 0 and ... and negatives[k + 1] > queue[q + 2]:
            spoiled = negatives[k] == 0 and negatives[k + 1] < queue[q + 3]
        """
        columns = self.ring[negation.number]

        def term(name: str) -> Term:
            word, kind = f"negatives[k + {3 + columns.index(name)}]", self.plan.columns[name]
            missing = None
            if name in self.plan.lacking:
                missing = f"negatives[k + {3 + columns.index(f'{_LACKS}{name}')}] != 0"
            known = None if kind not in (Kind.INT, Kind.UNSIGNED) else "True"
            if name in self.plan.nulls:
                known = f"negatives[k + {3 + columns.index(f'{_NULL}{name}')}] == 0"
            source = f"as_float({word})" if kind is Kind.FLOAT else word
            return Term(source, kind, missing, self.plan.types[name], known)

        read = self.vector.reader(at, words, negative=term)
        conditions = [
            f"negatives[k] == {negation.number}",
            f"negatives[k + 1] < {words(Value('until', negation.number))}",
        ]
        conditions += [f"negatives[k + {3 + columns.index(name)}] == {self._event_word(name)}" for name in self.keys]
        conditions += [condition(p, read, self.constants) for p in self.automaton.against[negation.step.var]]
        after = words(Value("after", negation.number))
        if self.plan.counts_from_start:  # an event before the first component lies in the window with its start, too
            conditions.append(f"({after} >= 0 or negatives[k + {3 + columns.index(START_TICKS)}] >= floor)")
        in_window = "negatives[k + 2] >= floor"
        if self.places:  # positions in other partitions tell nothing
            conditions.append(in_window)
        w(f"k = (reg[NEGATIVES] - 1) * {self.negative_stride}")
        with w.block(
            f"while not spoiled and k >= 0 and {words(Value('until', negation.number))} >= 0"
            f" and negatives[k + 1] > {after}{'' if self.places else f' and {in_window}'}:"
        ):
            w(f"spoiled = {' and '.join(conditions)}", f"predicates += {len(conditions)}")
            w(f"k -= {self.negative_stride}")

    def _time_passed(self, w: Writer) -> None:
        """Report complete matches whose window has passed before the batch; at the end of time, all of them:

        if now == 4611686018427387904:
            while reg[PENDING] > 0 and True:
        """
        with w.block(f"if now == {END_OF_TIME}:"):
            if self.plan.window is not None:
                self._report_due(w, "True")
            else:
                with w.block("for g in range(reg[GROUPS]):"):
                    w(f"at = g * {self.group_stride}")
                    with w.block(f"if groups[at + SET] >= 0 and ({self._is_waiting_table()}):"):
                        w("roots = with_root(reg, roots, groups[at + SET], LOWEST)", "groups[at + SET] = EMPTY")
        if self.plan.window is not None and not self.plan.counts_events:
            with w.block("elif now > LOWEST:"):
                self._report_due(w, "pending_times[0] < now - limit")

    def _is_waiting_table(self) -> str:
        return " or ".join(f"groups[at + {WORDS}] == {number}" for number in self.waiting)

    def _report_due(self, w: Writer, due: str) -> None:
        """Report the matches whose window has passed, unless an event has spoiled them:

        at = heap_pop(pending_times, pending_items, reg[PENDING]) * 9
        if groups[at + SET] >= 0:
            roots = with_root(reg, roots, groups[at + SET], LOWEST)
        """
        with w.block(f"while reg[PENDING] > 0 and {due}:"):
            w("at = heap_pop(pending_times, pending_items, reg[PENDING])" + f" * {self.group_stride}")
            w("reg[PENDING] -= 1")
            with w.block("if groups[at + SET] >= 0:"):
                w("roots = with_root(reg, roots, groups[at + SET], LOWEST)", "groups[at + SET] = EMPTY")

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, w: Writer) -> None:
        """Insert the queued groups into tables, as items of the store:

        for q in range(0, queued * 4, 4):
            before = queue[q + 1]
            item[BEFORE] = before
        """
        with w.block("if queued == 0:"):
            w("continue")
        w("partial_matches += queued", "item[ROW] = row", "item[TIME] = time[e]")
        nulls = [f"int(not ({self.vector.event_is_known(name)}))" for name in self.summary.nullable]
        for number, word in enumerate([*map(self._event_word, self.summary.columns), *nulls], NODE_VALUES):
            w(f"item[{number}] = {word}")
        with w.block(f"for q in range(0, queued * {self.queue_stride}, {self.queue_stride}):"):
            w("before = queue[q + 1]", "item[STEP] = queue[q]", "item[BEFORE] = before")
            if self.plan.counts_from_start:
                w(f"item[START] = began if before == EMPTY else min(began, nodes[before * {self.node_stride} + START])")
            else:
                w(f"item[START] = m if before == EMPTY else nodes[before * {self.node_stride} + START]")
            for at in range(self.automaton.end):
                with w.block(f"{'if' if at == 0 else 'elif'} queue[q] == {at}:"):
                    self._arrive(w, at)

    def _arrive(self, w: Writer, at: int) -> None:
        def words(value: Value) -> str:
            return f"queue[q + {2 + self.states[at].index(value)}]"

        before = len(w.lines)
        for number, table in enumerate(self.tables):
            if table.at == at:
                unspoiled = self._unspoiled(w, at, words) if table.waits else nullcontext()
                with w.when(self._entry_conditions(table.entry, at, words)), unspoiled:
                    self._put(w, number, table, words)
        if at in self.automaton.accepting and not self.automaton.waits_at(at):
            conditions = self._entry_conditions(self.automaton.leaving(at, self.automaton.end), at, words)
            with w.when(conditions), self._unspoiled(w, at, words):
                w("nodes, roots = with_match(nodes, reg, roots, item, floor)")
        if len(w.lines) == before:
            w("pass")

    def _entry_conditions(self, entry: Entry, at: int, words: Source) -> list[str]:
        read = self.vector.reader(at, words)
        conditions = [condition(p, read, self.constants) for p in entry.predicates]
        if entry.least:
            conditions.append(f"{words(Value('taken', at))} >= {entry.least}")
        if entry.fewer_than is not None:
            conditions.append(f"{words(Value('taken', at))} < {entry.fewer_than}")
        return conditions

    def _put(self, w: Writer, number: int, table: Table, words: Source) -> None:
        """Put the item into its group of a table:

        groups, heads, g = group_of(groups, heads, reg, words, words3, words2)
        nodes = put(nodes, groups, reg, words.shape[0], g, item, floor, m)
        """
        width = self._width(len(table.values))
        indexed = self._width(len(table.indexed)) if table.others else "unlinked"
        self._fill_words(w, number, [words(value) for value in table.values])
        if self.by_time or (table.waits and self.plan.window is not None):
            w("known = reg[GROUPS]")
        w(f"groups, heads, g = group_of(groups, heads, reg, words, {width}, {indexed})")
        if self.by_time:
            w("note_time(groups, words.shape[0], g, g == known, time[e])")
        w("nodes = put(nodes, groups, reg, words.shape[0], g, item, floor, m)")
        if table.waits and self.plan.window is not None:
            with w.block("if g == known:"):
                w("pending_times = grown(pending_times, reg[PENDING] + 1)")
                w("pending_items = grown(pending_items, reg[PENDING] + 1)")
                w(f"heap_push(pending_times, pending_items, reg[PENDING], {words(Value('start'))}, g)")
                w("reg[PENDING] += 1")

    @contextmanager
    def _unspoiled(self, w: Writer, at: int, words: Source) -> Iterator[None]:
        """A block for a complete match that passes the negations that are decided on completion."""
        leads = [f"{words(Value('lead', n.number))} < floor" for n in self.automaton.leading if n.after <= at]
        late = [n for n in self.automaton.late if n.after <= at]
        with w.when(leads):
            if late:
                w("spoiled = False")
            for negation in late:
                self._search_negative(w, negation, at, words)
            with w.when(["not spoiled"] if late else []):
                yield


# --- writing source ---------------------------------------------------------------------------------------------------


def _no_words(value: Value) -> str:
    raise AssertionError(f"a run that begins has no {value.what} yet")


def _named(component: int, takes: bool) -> str:
    """A component in comments: by its number, since its name is text of the query."""
    return f"component {component} takes" if takes else f"component {component} begins"


_LACKS, _NULL = "\0lacks ", "\0null "
"""The prefixes of columns that hold whether a negative event's type lacks an attribute, and whether it is null. No
attribute is named so."""
