"""SASE's sequence scan and construction (SASE §3.2-§4): active instance stacks, for sequences of single events.

Each positive component but the last has a stack of the events that may be it; an instance remembers the most recent
instance of the previous stack (its RIP). An event that may be the last component starts the construction: a depth-first
search back through the stacks, written out as nested loops.

Stacks are partitioned by the equalities between neighbouring components (PAIS): instances of one value form a chain,
found through a hash table, so only instances that agree are ever visited. Predicates are tested in the loop of the
earliest event they speak of, that is as soon as the search can test them. Events that may be a negated component lie in
chains of their own; an instance remembers the latest of them before it, so most absences are decided by one look.

Options, for the comparisons of SASE §5 (the defaults are what the optimiser would choose):
`algorithm` ais | basic      basic searches the runtime stack of all events (§3.2) instead of instance stacks
`equalities` hashed | first | none    all equalities of neighbours in the chains' key, or one, or none (plain stacks)
`others` early | late | multi         further predicates in the search, after it (selection), or Multi-PAIS
`window` early | late        window in scan and construction, or only on complete sequences
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cepheid import expr as ex
from cepheid.codegen.compile import compiled
from cepheid.codegen.scalar import Constants, Term, condition
from cepheid.codegen.writer import Writer
from cepheid.errors import NotAvailable
from cepheid.expr import Attr, Compare, Expr
from cepheid.kernels import (
    BOUNDS,
    COUNTERS,
    END_OF_TIME,
    FREE,
    OLDEST,
    VALUES,
    Kernel,
    OperatorRegisters,
    StateArray,
    prefetch,
)
from cepheid.kernels.instance_stack import IMPORTS, Link, Stack
from cepheid.physical import Kind, Plan, Step

_CHUNK = 4096
"""How many events are looked at between two occasions to let arrays grow."""

DEFAULTS: Mapping[str, str] = {"algorithm": "ais", "equalities": "hashed", "others": "early", "window": "early"}


def kernel(plan: Plan) -> Kernel:
    generator = _Generator(plan, {**DEFAULTS, **{k: str(v) for k, v in plan.options.items()}})
    source = generator.source()
    column_types = tuple("float64" if kind is Kind.FLOAT else "int64" for kind in plan.columns.values())
    arguments = ["int", "int", "int64", "int64", "uint64", "int64", "int64", "float64", *column_types]
    arguments += [f"{array.dtype}!" for array in generator.arrays] + ["int64!", "int64!"]
    return Kernel(
        plan=plan,
        source=source,
        function=compiled(source, arguments),
        arrays=tuple(generator.arrays),
        numbers=np.array(generator.constants.numbers, np.float64),
        steps=tuple(step.var for step in generator.positive),
        column_types=column_types,
        has_bounds=False,
        texts=tuple(generator.constants.texts),
        needs_ranks="ranks[" in source,
        operators=tuple(generator.operators()),
    )


@dataclass(frozen=True, slots=True)
class _Absence:
    """A negated component: `after` positive components stand before it, and `at` is the one whose instances remember
    the latest negated event."""

    ring: Stack
    after: int
    at: int
    predicates: tuple[Expr, ...]

    @property
    def pointer(self) -> str:
        return f"{self.ring.name}"


class _Generator:
    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        self.plan = plan
        self.options = options
        self.positive = [step for step in plan.steps if not step.negated]
        self.last = len(self.positive) - 1
        self.index = {step.var: i for i, step in enumerate(self.positive)}
        self.by_position = plan.query.language.ordered_by_position
        self.constants = Constants([float(plan.window or 0)])
        self.column_number = {name: i for i, name in enumerate(plan.columns)}
        negated = {step.var for step in plan.steps if step.negated}
        self.tests = [p for p in plan.predicates if not ex.variables(p) & negated]
        self.rings: list[Stack] = []
        self.used_links: set[Expr] = set()
        self.equal: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for i, step in enumerate(self.positive[: self.last]):
            links = self._links(step.var, self.positive[i + 1].var, self.tests)
            self.rings.append(self._stack(f"s{i}", step, links))
        for i, ring in enumerate(self.rings):
            if i > 0:
                ring.pointers.append("rip")
        self.absences = [self._absence(number, step) for number, step in enumerate(plan.steps) if step.negated]
        self.trailing = [a for a in self.absences if a.after > self.last]
        for absence in self.absences:
            if absence not in self.trailing and absence.at < self.last:
                self.rings[absence.at].pointers.append(absence.pointer)
        for ring in [*self.rings, *(absence.ring for absence in self.absences)]:
            ring.columns = self._kept(ring.step.var)
        self.registers: list[str] = []
        self.arrays: list[StateArray] = []

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _stack(self, name: str, step: Step, links: tuple[Link, ...], columns: tuple[str, ...] = ()) -> Stack:
        floats = frozenset(str(i) for i, kind in enumerate(self.plan.columns.values()) if kind is Kind.FLOAT)
        return Stack(name, step, links, self.plan.counts_events, columns, floats)

    def _kept(self, var: str) -> tuple[str, ...]:
        """The attributes of a component that are read again later. Most equalities are decided by the chains."""
        names = [
            node.name
            for predicate in self.plan.predicates
            if self.options["algorithm"] == "basic" or not self._is_decided(predicate)
            for node in ex.walk(predicate)
            if isinstance(node, Attr) and node.var == var
        ]
        if var == self.positive[self.last].var:
            names += [link.there for absence in self.trailing for link in absence.ring.links]
        kept = [str(self.column_number[name]) for name in dict.fromkeys(names)]
        if any(name in self.plan.lacking for name in names):
            kept.append("mask")
        return tuple(kept)

    def _links(self, here: str, there: str, predicates: Sequence[Expr]) -> tuple[Link, ...]:
        if self.options["equalities"] == "none" or self.options["algorithm"] == "basic":
            return ()
        links: list[tuple[Link, Expr]] = []
        for predicate in predicates:
            match predicate:
                case Compare(op="=", left=Attr() as a, right=Attr() as b) if {a.var, b.var} == {here, there}:
                    mine, other = (a, b) if a.var == here else (b, a)
                    if mine.name in self.plan.lacking or other.name in self.plan.lacking:
                        continue
                    kinds = {self.plan.columns[mine.name], self.plan.columns[other.name]}
                    if Kind.CODE in kinds and len(kinds) > 1:
                        continue
                    links.append((Link(mine.name, other.name, Kind.FLOAT in kinds), predicate))
        if self.options["equalities"] == "first":
            links = links[:1]
        if len(links) == 1:
            self.used_links.add(links[0][1])
            self._note_equal(links[0][0], here, there)
        return tuple(link for link, _ in links)

    def _absence(self, number: int, step: Step) -> _Absence:
        after = sum(not s.negated for s in self.plan.steps[:number])
        at = min(after, self.last)
        predicates = tuple(p for p in self.plan.predicates if step.var in ex.variables(p))
        links = self._links(step.var, self.positive[at].var, predicates)
        return _Absence(self._stack(f"n{number}", step, links), after, at, predicates)

    # --- the function -------------------------------------------------------------------------------------------------

    def source(self) -> str:
        events = Writer()
        with events.block("for e in range(start, stop):"):
            if self.options["algorithm"] == "basic":
                self._basic_event(events)
            else:
                self._event(events)
        body = Writer()
        body("stop = -1")
        with body.block("while stop < time.shape[0]:"):
            body("start = stop", f"stop = min(max(start, 0) + {_CHUNK}, time.shape[0])")
            self._make_room(body)
            body.lines.extend("    " + line if line else "" for line in events.lines)
        columns = [f"column{i}" for i in range(len(self.plan.columns))]
        self._declare_arrays()
        names = [array.name for array in self.arrays]
        out = Writer()
        out(IMPORTS, "", "")
        parameters = ["now", "first", "time", "measure", "mask", "texts", "ranks", "numbers", *columns, *names]
        with out.block(f"def step({', '.join([*parameters, 'values', 'bounds'])}):"):
            out("limit = np.int64(numbers[0])", *(ring.offsets for ring in self._all_rings()))
            for counter, number in _COUNTED.items():
                out(f"{counter} = reg[{number}]")
            out("written = 0", "wanted = 0")
            for number, register in enumerate(self.registers):
                out(f"{register} = reg[{FREE + number}]")
            out.lines.extend("    " + line if line else "" for line in body.lines)
            out(f"matches += written // {len(self.positive)}")
            for counter, number in _COUNTED.items():
                out(f"reg[{number}] = {counter}")
            for number, register in enumerate(self.registers):
                out(f"reg[{FREE + number}] = {register}")
            out(f"reg[{VALUES}] = written", f"reg[{BOUNDS}] = 0")
            self._write_oldest(out)
            out(f"return {', '.join([*names, 'values', 'bounds'])}")
        return out.text()

    def _make_room(self, w: Writer) -> None:
        """Arrays grow here, between chunks of events, and not in the loop over events: an array that is assigned in a
        loop makes Numba count references at every turn, which costs more than all the rest."""
        w("# make room for all that the events of this chunk may push")
        if not self.trailing:
            with w.block("if wanted > values.shape[0]:"):
                w("values = grown(values, wanted)")
        for ring in self._all_rings():
            name, base, following = ring.name, self._register(f"{ring.name}_base"), self._register(f"{ring.name}_next")
            if name == "cell":
                w("room = stop - start")
            else:
                w(f"room = count_bit(mask, max(start, 0), stop, np.uint64({1 << ring.step.begin}))")
            with w.block(f"if {ring.width} * ({following} - {base} + room) > {name}.shape[0]:"):
                w(f"{name} = relaid({name}, {ring.width}, {base}, {following}, room)")
            w(f"{name}_last = {name}.shape[0] // {ring.width} - 1")
            if ring.links:
                used = self._register(f"{name}_used")
                with w.block(f"if 4 * ({used} + room) > {name}_chains.shape[0]:"):
                    w(f"{name}_chains = rehashed_chains({name}_chains, {base}, room)")
                    w(f"{used} = used_chains({name}_chains)")
        if chained := self._chained():
            sizes = " + ".join(f"{ring.name}_chains.shape[0]" for ring in chained)
            w(f"far = time.shape[0] if {sizes} > {prefetch.FAR} else 0")

    def _chained(self) -> list[Stack]:
        return [ring for ring in self._all_rings() if ring.links]

    def _all_rings(self) -> list[Stack]:
        if self.options["algorithm"] == "basic":
            columns = tuple(name.removeprefix("c") for name in self._cell_arrays() if name.startswith("c"))
            return [self._stack("cell", self.positive[0], (), columns)]
        return [*self.rings, *(absence.ring for absence in self.absences)]

    def _declare_arrays(self) -> None:
        arrays: list[StateArray] = []
        for ring in self._all_rings():
            arrays.append(StateArray(ring.name, "int64", 16 * ring.width))
            if ring.links:
                arrays.append(StateArray(f"{ring.name}_chains", "int64", 32, fill=-1))
        if self.trailing:
            arrays += [StateArray(name, self._dtype(name.rpartition("_")[2]), 16) for name in self._pending_arrays()]
        self.arrays = [StateArray("reg", "int64", FREE + len(self.registers)), *arrays]

    def _dtype(self, name: str) -> str:
        if name == "cmask":
            return "uint64"
        if name.startswith("c") and name[1:].isdigit():
            return "float64" if list(self.plan.columns.values())[int(name[1:])] is Kind.FLOAT else "int64"
        return "int64"

    def operators(self) -> Iterator[OperatorRegisters]:
        """The instances pushed on each stack; the events of the last component are not pushed."""
        for ring in [*self.rings, *(absence.ring for absence in self.absences)]:
            if f"{ring.name}_next" in self.registers:
                yield OperatorRegisters(ring.step.var, FREE + self.registers.index(f"{ring.name}_next"))

    def _register(self, name: str) -> str:
        if name not in self.registers:
            self.registers.append(name)
        return name

    # --- one event ----------------------------------------------------------------------------------------------------

    def _event(self, w: Writer) -> None:
        self._look_ahead(w)
        self._read_event(w)
        if self.trailing:
            self._flush(w)
        with w.block("if e < 0:"):
            w("continue")
        self._expire(w)
        for i in range(self.last, -1, -1):
            with w.block(f"if bits & np.uint64({1 << self.positive[i].begin}):  # can be {_comment(self.positive[i])}"):
                if i == self.last:
                    self._complete(w)
                else:
                    self._push_positive(w, i)
        for absence in self.absences:
            step = absence.ring.step
            with w.block(f"if bits & np.uint64({1 << step.begin}):  # can be {_comment(step)}, negated"):
                self._push(w, absence.ring, {})

    def _look_ahead(self, w: Writer) -> None:
        """Ask for the memory that events further on will look at: their chains, then the heads of these."""
        chained = self._chained()
        if not chained:
            return
        w("# ask for what later events will look at, so that it is there in time")
        for distance in (prefetch.AHEAD, prefetch.SOON):
            wanted = f"mask[e + {distance}] & np.uint64({self._wanted_bits()})"
            with w.block(f"if e + {distance} < far and {wanted}:"):
                for ring in chained:
                    terms = [(link, self._event_term(link.here, f"e + {distance}")) for link in ring.links]
                    link = f"first_link({ring.name}_chains, {self._key(terms)[0]})"
                    if distance == prefetch.AHEAD:
                        w(f"prefetch({ring.name}_chains, {link})")
                    else:
                        w(f"prefetch({ring.name}, {ring.place(f'{ring.name}_chains[{link} + 1]')})")

    def _read_event(self, w: Writer) -> None:
        """Event -1 stands for the time that has passed before the batch."""
        with w.block("if e < 0:"):
            w("t = now", "m = now", "bits = np.uint64(0)")
            if self.plan.counts_events:
                with w.block(f"if now != {END_OF_TIME}:"):
                    w("continue")
        with w.block("else:"):
            w("t = time[e]", "m = measure[e]", "bits = mask[e]", "events += 1")
            with w.block(f"if bits & np.uint64({self._wanted_bits()}) == 0:"):
                w("dropped += 1")
                if not self.trailing:
                    w("continue")

    def _wanted_bits(self) -> int:
        return sum({1 << step.begin for step in self.plan.steps})

    def _expire(self, w: Writer) -> None:
        """Windows in the scan (§4.3): instances that have left the window are dropped."""
        if self.plan.window is None or self.options["window"] == "late" or self._per_partition_measure():
            return
        w("# drop the instances that have left the window")
        for ring in [*self.rings, *(absence.ring for absence in self.absences)]:
            base, following = self._register(f"{ring.name}_base"), self._register(f"{ring.name}_next")
            oldest = ring.at("measure", ring.place(base))
            with w.block(f"while {base} < {following} and m - {oldest} > limit:"):
                w(f"{base} += 1")

    def _per_partition_measure(self) -> bool:
        return self.plan.counts_events and bool(self.plan.key)

    # --- stacks -------------------------------------------------------------------------------------------------------

    def _push_positive(self, w: Writer, i: int) -> None:
        pointers: dict[str, str] = {}
        if i > 0:
            self._find_head(w, self.rings[i - 1], f"rip{i}", self._event_term)
            pointers["rip"] = f"rip{i}"
        for absence in self.absences:
            if absence.at == i and absence not in self.trailing:
                self._find_head(w, absence.ring, f"latest_{absence.pointer}", self._event_term)
                pointers[absence.pointer] = f"latest_{absence.pointer}"
        if i == 0:
            self._push(w, self.rings[0], pointers)
        else:
            with w.block(f"if {self._alive(self.rings[i - 1], f'rip{i}')}:"):
                if self.options["others"] == "multi":
                    self._cross_filter(w, i)
                    with w.block("if found:"):
                        self._push(w, self.rings[i], pointers)
                else:
                    self._push(w, self.rings[i], pointers)

    def _cross_filter(self, w: Writer, i: int) -> None:
        """Multi-PAIS (§4.2.2): some instance of the previous stack must agree on every equivalence attribute."""
        ring = self.rings[i - 1]
        pair = {ring.step.var, self.positive[i].var}
        tests = [p for p in self.tests if ex.variables(p) == pair and p not in self.used_links]
        w("found = False", f"j = rip{i}")
        with w.block(f"while {self._alive(ring, 'j')}:"):
            w(f"k = {ring.place('j')}")
            read = self._reader({ring.step.var: ("ring", ring, "k"), self.positive[i].var: ("event", None, "")})
            self._count_predicates(w, len(tests))
            with w.block(f"if {' and '.join(condition(p, read, self.constants) for p in tests) or 'True'}:"):
                w("found = True", "break")
            w(f"j = {self._previous(ring, 'j', 'k')}")

    def _alive(self, ring: Stack, number: str) -> str:
        """Whether an instance exists and can still be in the window of the event at hand."""
        base = self._register(f"{ring.name}_base")
        alive = f"{number} >= {base}"
        if self._sorted_by_measure(ring):
            alive += f" and m - {ring.at('measure', ring.place(number))} <= limit"
        return alive

    def _sorted_by_measure(self, ring: Stack) -> bool:
        """Whether the instances of a chain leave the window in order, so that a search can stop at the first outside.
        Places in a partition only compare within it."""
        if self.plan.window is None or self.options["window"] == "late":
            return False
        return not self._per_partition_measure() or {link.here for link in ring.links} >= set(self.plan.key)

    def _find_head(self, w: Writer, ring: Stack, target: str, read_event: Callable[[str], Term]) -> None:
        """The most recent instance of a chain before the event at hand; at equal times events are not in sequence."""
        base, following = self._register(f"{ring.name}_base"), self._register(f"{ring.name}_next")
        w(f"# {target}: the latest instance in {ring.name} before this event" + (", of its key" if ring.links else ""))
        if ring.links:
            w(f"{target} = EMPTY")
            key, valid = self._key([(link, read_event(link.there)) for link in ring.links])
            with w.block(f"if {valid}:"):
                w(f"{target} = {self._head(ring, key)}")
        else:
            w(f"{target} = {following} - 1")
        if not self.by_position:
            place = ring.place(target)
            with w.block(f"while {target} >= {base} and {ring.at('time', place)} >= t:"):
                w(f"{target} = {self._previous(ring, target, place)}")

    def _head(self, ring: Stack, key: str) -> str:
        return f"{ring.name}_chains[chain_of({ring.name}_chains, {key}) + 1]"

    def _previous(self, ring: Stack, number: str, place: str) -> str:
        return ring.at("prev", place) if ring.links else f"{number} - 1"

    def _key(self, parts: list[tuple[Link, Term]]) -> tuple[str, str]:
        """Source of a chain's key, and of the condition that none of its parts is null."""
        keys: list[str] = []
        valid: list[str] = []
        for link, term in parts:
            if term.kind is Kind.FLOAT:
                keys.append(f"float_key({term.source})")
                valid.append(f"{term.source} == {term.source}")
            else:
                keys.append(f"float_key(float({term.source}))" if link.as_float else term.source)
                valid.append(f"{term.source} != {'NULL_CODE' if term.kind is Kind.CODE else 'NULL_INT'}")
        key = keys[0]
        for further in keys[1:]:
            key = f"mixed_key({key}, {further})"
        return key, " and ".join(valid)

    def _push(self, w: Writer, ring: Stack, pointers: Mapping[str, str]) -> None:
        name = ring.name
        following = self._register(f"{name}_next")

        def store() -> None:
            w(f"# push onto {name}")
            w(f"i = {ring.place(following)}", ring.put("row", "i", "first + e"), ring.put("time", "i", "t"))
            if ring.measured:
                w(ring.put("measure", "i", "m"))
            for pointer in ring.pointers:
                w(ring.put(pointer, "i", pointers[pointer]))
            for column in ring.columns:
                w(ring.put(f"c{column}", "i", "bits" if column == "mask" else f"column{column}[e]"))

        if ring.links:
            key, valid = self._key([(link, self._event_term(link.here)) for link in ring.links])
            used = self._register(f"{name}_used")
            with w.block(f"if {valid}:"):
                store()
                w(f"key = {key}", f"chain = chain_of({name}_chains, key)", f"head = {name}_chains[chain + 1]")
                w(ring.put("prev", "i", "head"))
                with w.block("if head == EMPTY:"):
                    w(f"{used} += 1", f"{name}_chains[chain] = key")
                w(f"{name}_chains[chain + 1] = {following}", f"{following} += 1", "partials += 1")
                self._note_peak(w)
        else:
            store()
            w(f"{following} += 1", "partials += 1")
            self._note_peak(w)

    def _note_peak(self, w: Writer) -> None:
        rings = self._all_rings()
        held = [f"{r.name}_next - {r.name}_base" for r in rings]
        for ring in rings:
            self._register(f"{ring.name}_base")
            self._register(f"{ring.name}_next")
        w(f"retained = {' + '.join(held)}")
        with w.block("if retained > peak:"):
            w("peak = retained")

    # --- construction -------------------------------------------------------------------------------------------------

    def _complete(self, w: Writer) -> None:
        """Sequence construction from the event at hand, back to the first component. It changes nothing but the output,
        so where that is too small, it is done again with enough room."""
        if self.trailing:
            self._construct(w)
            return
        w("before, tested = written, predicates")
        self._construct(w)
        w("# no room left: do this event again, with enough")
        self._repeat_if_full(w)

    def _repeat_if_full(self, w: Writer) -> None:
        with w.block("if written > values.shape[0]:"):
            w("wanted, written, predicates = written, before, tested", "events -= 1", "stop = e", "break")

    def _construct(self, w: Writer) -> None:
        for absence in self.absences:
            if absence.at == self.last and absence not in self.trailing:
                self._find_head(w, absence.ring, f"latest_{absence.pointer}", self._event_term)
        places: dict[str, tuple[str, Stack | None, str]] = {self.positive[self.last].var: ("event", None, "")}
        if self.last == 0:
            with w.block("if limit >= 0:" if self.plan.window is not None else "if True:"):
                self._at_depth(w, 0, places)
            return
        self._find_head(w, self.rings[self.last - 1], f"j{self.last - 1}", self._event_term)
        self._search(w, self.last - 1, places)

    def _search(self, w: Writer, depth: int, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        ring = self.rings[depth]
        number, place = f"j{depth}", f"i{depth}"
        with w.block(f"while {self._alive(ring, number)}:  # construct backwards"):
            w(f"{place} = {ring.place(number)}")
            inner = {**places, ring.step.var: ("ring", ring, place)}
            self._at_depth(w, depth, inner)
            w(f"{number} = {self._previous(ring, number, place)}")

    def _at_depth(self, w: Writer, depth: int, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        """Test what can be tested now that the component at this depth is chosen, then go on to the one before it."""
        read = self._reader(places)
        ready = [p for p in self._residual() if self._depth_of(ex.variables(p)) == depth]
        absences = [a for a in self.absences if a not in self.trailing and self._absence_depth(a) == depth]
        if self.options["others"] != "early":
            ready = self._residual() if depth == 0 else []
            absences = [a for a in self.absences if a not in self.trailing] if depth == 0 else []
        checks = [condition(p, read, self.constants) for p in ready]
        if depth == 0 and self.plan.window is not None and not all(map(self._sorted_by_measure, self.rings)):
            checks.insert(0, f"m - {self._value_of(places, 0, 'measure', 'm')} <= limit")
        self._count_predicates(w, len(ready))

        def go_on() -> None:
            if depth == 0:
                self._found(w, places)
            else:
                if depth == self.last:
                    return
                w(f"j{depth - 1} = {self.rings[depth].at('rip', f'i{depth}')}")
                self._search(w, depth - 1, places)

        def then_absences(remaining: list[_Absence]) -> None:
            if not remaining:
                go_on()
                return
            if remaining[0].after == depth + 1 and not self._tests_of(remaining[0]):
                self._stop_before(w, remaining[0], places)
                then_absences(remaining[1:])
                return
            self._look_for(w, remaining[0], places)
            with w.block("if not spoiled:"):
                then_absences(remaining[1:])

        if checks:
            with w.block(f"if {' and '.join(checks)}:"):
                then_absences(absences)
        else:
            then_absences(absences)

    def _residual(self) -> list[Expr]:
        return [p for p in self.tests if not self._is_decided(p)]

    def _is_decided(self, predicate: Expr) -> bool:
        """Whether the chains decide it, by themselves or with others."""
        return predicate in self.used_links or self._is_implied(predicate)

    def _note_equal(self, link: Link, here: str, there: str) -> None:
        """Remember which attributes a chain of exact keys makes equal, to find the equalities that follow from it."""
        left, right = (here, link.here), (there, link.there)
        merged = self.equal.get(left, {left}) | self.equal.get(right, {right})
        for member in merged:
            self.equal[member] = merged

    def _is_implied(self, predicate: Expr) -> bool:
        match predicate:
            case Compare(op="=", left=Attr() as a, right=Attr() as b):
                return (b.var, b.name) in self.equal.get((a.var, a.name), ())
        return False

    def _depth_of(self, names: frozenset[str]) -> int:
        return min((self.index[var] for var in names if var in self.index), default=self.last)

    def _absence_depth(self, absence: _Absence) -> int:
        names = frozenset(v for p in self._tests_of(absence) for v in ex.variables(p))
        neighbour = max(absence.after - 1, 0)
        return min(self._depth_of(names), neighbour)

    def _look_for(self, w: Writer, absence: _Absence, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        """Whether a negated event spoils the sequence: from the latest one before the next component, backwards."""
        ring = absence.ring
        w("spoiled = False", f"q = {self._latest(absence)}")
        with w.block(f"while q >= {self._register(f'{ring.name}_base')}:"):
            w(f"k = {ring.place('q')}")
            if absence.after == 0:
                with w.block(f"if m - {ring.at('measure', 'k')} > limit:"):
                    w("break")
            else:
                with w.block(f"if not {self._comes_between(absence, places)}:"):
                    w("break")
            self._test_absence(w, absence, {**places, ring.step.var: ("ring", ring, "k")})
            w(f"q = {self._previous(ring, 'q', 'k')}")

    def _stop_before(self, w: Writer, absence: _Absence, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        """A negated event that is tested for nothing else spoils all instances before it: the search ends there."""
        w(f"q = {self._latest(absence)}")
        with w.block(f"if q >= {self._register(f'{absence.ring.name}_base')}:"):
            w(f"k = {absence.ring.place('q')}")
            with w.block(f"if {self._comes_between(absence, places)}:"):
                w("break")

    def _latest(self, absence: _Absence) -> str:
        """The latest negated event before the next component."""
        if absence.at == self.last:
            return f"latest_{absence.pointer}"
        return self.rings[absence.at].at(absence.pointer, f"i{absence.at}")

    def _comes_between(self, absence: _Absence, places: dict[str, tuple[str, Stack | None, str]]) -> str:
        """Whether the negated event at place k comes after the component before it."""
        name, of_event = ("row", "first + e") if self.by_position else ("time", "t")
        return f"{absence.ring.at(name, 'k')} > {self._value_of(places, absence.after - 1, name, of_event)}"

    def _tests_of(self, absence: _Absence) -> list[Expr]:
        """What is left to test of a negated event that was found by its chain."""
        return [p for p in absence.predicates if not self._is_decided(p)]

    def _test_absence(self, w: Writer, absence: _Absence, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        read = self._reader(places)
        tests = self._tests_of(absence)
        self._count_predicates(w, len(tests))
        with w.block(f"if {' and '.join(condition(p, read, self.constants) for p in tests) or 'True'}:"):
            w("spoiled = True", "break")

    def _count_predicates(self, w: Writer, number: int) -> None:
        if number:
            w(f"predicates += {number}")

    def _found(self, w: Writer, places: dict[str, tuple[str, Stack | None, str]]) -> None:
        rows = [self._value_of(places, i, "row", "first + e") for i in range(len(self.positive))]
        if self.trailing:
            self._postpone(w, places, rows)
            return
        self._emit(w, rows)

    def _emit(self, w: Writer, rows: Sequence[str]) -> None:
        """A match, if there is room for it; if not, it is counted."""
        if self.trailing:
            with w.block(f"if written + {len(rows)} > values.shape[0]:"):
                w(f"values = grown(values, written + {len(rows)})")
        with w.block(f"if written + {len(rows)} <= values.shape[0]:"):
            for offset, row in enumerate(rows):
                w(f"values[written + {offset}] = {row}")
        w(f"written += {len(rows)}")

    def _value_of(self, places: Mapping[str, tuple[str, Stack | None, str]], i: int, array: str, of_event: str) -> str:
        where, ring, place = places[self.positive[i].var]
        return of_event if where == "event" or ring is None else ring.at(array, place)

    # --- reading attributes -------------------------------------------------------------------------------------------

    def _event_term(self, name: str, event: str = "e") -> Term:
        return Term(f"column{self.column_number[name]}[{event}]", self.plan.columns[name], self._missing(name, "bits"))

    def _missing(self, name: str, mask: str) -> str | None:
        bit = self.plan.lacking.get(name)
        return None if bit is None else f"{mask} & np.uint64({1 << bit}) != 0"

    def _reader(self, places: Mapping[str, tuple[str, Stack | None, str]]) -> Callable[[ex.Attr | ex.Aggregate], Term]:
        def read(node: ex.Attr | ex.Aggregate) -> Term:
            assert isinstance(node, Attr)
            where, ring, place = places[node.var]
            kind, number = self.plan.columns[node.name], self.column_number[node.name]
            if where == "event":
                return self._event_term(node.name)
            if where == "pending":
                mask = f"pending_{self.index[node.var]}_cmask[{place}]"
                source = f"pending_{self.index[node.var]}_c{number}[{place}]"
                return Term(source, kind, self._missing(node.name, mask))
            assert ring is not None
            return Term(ring.at(f"c{number}", place), kind, self._missing(node.name, ring.at("cmask", place)))

        return read

    # --- trailing negation --------------------------------------------------------------------------------------------

    def _pending_arrays(self) -> list[str]:
        """A sequence that waits for its trailing negation: its events, the end of the last, the start of its window."""
        names = ["pending_heap", "pending_item", "pending_time", "pending_measure", "pending_free"]
        for i, step in enumerate(self.positive):
            names += [f"pending_{i}_row", *(f"pending_{i}_c{column}" for column in self._kept(step.var))]
        return names

    def _postpone(self, w: Writer, places: Mapping[str, tuple[str, Stack | None, str]], rows: Sequence[str]) -> None:
        """§3.3: a sequence with a trailing negation is decided when its window has passed."""
        size, made = self._register("pending_size"), self._register("pending_made")
        free = self._register("pending_freed")
        with w.block(f"if {free} > 0:"):
            w(f"{free} -= 1", f"p = pending_free[{free}]")
        with w.block("else:"):
            w(f"p = {made}", f"{made} += 1")
            with w.block(f"if {made} > pending_time.shape[0]:"):
                for array in self._pending_arrays():
                    w(f"{array} = grown({array}, {made})")
        w("pending_time[p] = t", f"pending_measure[p] = {self._value_of(places, 0, 'measure', 'm')}")
        for i, row in enumerate(rows):
            w(f"pending_{i}_row[p] = {row}")
            for column in self._kept(self.positive[i].var):
                of_event = "bits" if column == "mask" else f"column{column}[e]"
                w(f"pending_{i}_c{column}[p] = {self._value_of(places, i, f'c{column}', of_event)}")
        w(f"heap_push(pending_heap, pending_item, {size}, pending_measure[p], p)", f"{size} += 1")

    def _flush(self, w: Writer) -> None:
        size, free = self._register("pending_size"), self._register("pending_freed")
        with w.block(f"while {size} > 0 and m - pending_heap[0] > limit:"):
            w(f"p = heap_pop(pending_heap, pending_item, {size})", f"{size} -= 1")
            w(f"pending_free[{free}] = p", f"{free} += 1", "spoiled = False")
            places: dict[str, tuple[str, Stack | None, str]] = {
                step.var: ("pending", None, "p") for step in self.positive
            }
            for absence in self.trailing:
                ring = absence.ring
                read = self._reader(places)
                last = self.positive[self.last].var

                def of_last(name: str, read: Callable[[Attr], Term] = read, last: str = last) -> Term:
                    return read(Attr(last, name))

                base = self._register(f"{ring.name}_base")
                if ring.links:
                    key, _ = self._key([(link, of_last(link.there)) for link in ring.links])
                    w(f"q = {self._head(ring, key)}")
                else:
                    w(f"q = {self._register(f'{ring.name}_next')} - 1")
                with w.block(f"while not spoiled and q >= {base}:"):
                    w(f"k = {ring.place('q')}")
                    stop = (
                        f"{ring.at('row', 'k')} <= pending_{self.last}_row[p]"
                        if self.by_position
                        else f"{ring.at('time', 'k')} <= pending_time[p]"
                    )
                    with w.block(f"if {stop}:"):
                        w("break")
                    with w.block(f"if {ring.at('measure', 'k')} - pending_measure[p] <= limit:"):
                        self._test_absence(w, absence, {**places, ring.step.var: ("ring", ring, "k")})
                    w(f"q = {self._previous(ring, 'q', 'k')}")
            with w.block("if not spoiled:"):
                self._emit(w, [f"pending_{i}_row[p]" for i in range(len(self.positive))])

    # --- the basic plan -----------------------------------------------------------------------------------------------

    def _cell_arrays(self) -> list[str]:
        columns = {column for step in self.plan.steps for column in self._kept(step.var)}
        return ["row", "time", "measure", "cmask", *(f"c{column}" for column in sorted(columns - {"mask"}))]

    def _basic_event(self, w: Writer) -> None:
        """§3.2: every event has a cell in the runtime stack, and construction searches it from the latest cell back."""
        if self.absences:
            raise NotAvailable("the basic plan evaluates sequences without negation")
        (cells,) = self._all_rings()
        self._read_cell(w, cells)
        with w.block(f"if bits & np.uint64({1 << self.positive[self.last].begin}):"):
            places: dict[str, tuple[str, Stack | None, str]] = {self.positive[self.last].var: ("event", None, "")}
            w("before, tested = written, predicates", f"j{self.last} = cell_next")
            self._search_cells(w, cells, self.last - 1, places)
            self._repeat_if_full(w)
        self._push(w, cells, {})

    def _read_cell(self, w: Writer, cells: Stack) -> None:
        with w.block("if e < 0:"):
            w("continue")
        w("t = time[e]", "m = measure[e]", "bits = mask[e]", "events += 1")
        if self.plan.window is not None:
            base, following = self._register("cell_base"), self._register("cell_next")
            oldest = cells.at("measure", cells.place(base))
            with w.block(f"while {base} < {following} and m - {oldest} > limit:"):
                w(f"{base} += 1")

    def _search_cells(
        self, w: Writer, cells: Stack, depth: int, places: dict[str, tuple[str, Stack | None, str]]
    ) -> None:
        if depth < 0:
            read = self._reader(places)
            self._count_predicates(w, len(self.tests))
            with w.block(f"if {' and '.join(condition(p, read, self.constants) for p in self.tests) or 'True'}:"):
                self._emit(w, [self._value_of(places, i, "row", "first + e") for i in range(len(self.positive))])
            return
        later = self._value_of(places, depth + 1, "time", "t")
        w(f"j{depth} = j{depth + 1} - 1")
        with w.block(f"while j{depth} >= cell_base:"):
            w(f"i{depth} = {cells.place(f'j{depth}')}")
            chosen = f"{cells.at('cmask', f'i{depth}')} & np.uint64({1 << self.positive[depth].begin}) != 0"
            before = "" if self.by_position else f" and {cells.at('time', f'i{depth}')} < {later}"
            with w.block(f"if {chosen}{before}:"):
                inner = {**places, self.positive[depth].var: ("ring", cells, f"i{depth}")}
                self._search_cells(w, cells, depth - 1, inner)
            w(f"j{depth} -= 1")

    def _write_oldest(self, w: Writer) -> None:
        w("oldest = first + time.shape[0]")
        for ring in self.rings if self.options["algorithm"] == "ais" else self._all_rings():
            base, following = self._register(f"{ring.name}_base"), self._register(f"{ring.name}_next")
            with w.block(f"if {base} < {following}:"):
                w(f"oldest = min(oldest, {ring.at('row', ring.place(base))})")
        if self.trailing:
            with w.block(f"for p in range({self._register('pending_size')}):"):
                w("oldest = min(oldest, pending_0_row[pending_item[p]])")
        w(f"reg[{OLDEST}] = oldest")


_COUNTED = {
    "events": COUNTERS.index("events"),
    "dropped": COUNTERS.index("dropped_by_mask"),
    "partials": COUNTERS.index("partial_matches"),
    "predicates": COUNTERS.index("predicates"),
    "matches": COUNTERS.index("matches"),
    "peak": COUNTERS.index("peak_retained"),
}


def _comment(step: Step) -> str:
    """A component's number stands for it in comments: its name is the query's text."""
    return f"component on bit {step.begin}"
