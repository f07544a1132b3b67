"""Runs the families of one key: encodes batches, steps the compiled instances, and finds the rule of each match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import attribute, number_array, time_of
from cepheid.codegen.encoder import Dictionary
from cepheid.codegen.typed_columns import from_arrow
from cepheid.deploy.family_layout import Families
from cepheid.errors import Explosion, TooManyMatches, TooMuchMemory
from cepheid.io.rows import TIME
from cepheid.kernels.family import instances, saved_instances
from cepheid.kernels.family.event_bits import WORD, ClassRows
from cepheid.kernels.family.instances import (
    END,
    FIRST_LIMIT,
    LIMIT,
    NEVER,
    NONE,
    OUT,
    OUT_BITS,
    OUT_END,
    OUT_ROWS,
    OUT_START,
    OUT_WORD,
    QUEUE,
    QUEUE_DELAY,
    QUEUE_HEAD,
    RECENT_AT,
    RECENTS,
    REGISTERS,
    ROOM,
    RULE,
    TOP,
    WAKE,
    WORD_RECORD,
    RuleTables,
)
from cepheid.kernels.family.keys import key_numbers, rehashed
from cepheid.limits import NO_LIMITS, Limits
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.jit import WORTH_COMPILING, machine_code
from cepheid.runtime.kernel import END_OF_TIME, Array

_PIECE = 1 << 16
MOST = "all queries, of which it has the most"
"""What needs the memory, where the sum of all queries exceeds a limit."""


@dataclass(frozen=True, slots=True)
class RuleMatches:
    """Matches of families: the number of the rule, the start and the end in ticks, and the rows of the events."""

    rules: Array
    start: Array
    end: Array
    rows: Array
    """A row for each match; a family with fewer events leaves the last columns undefined."""

    def __len__(self) -> int:
        return len(self.rules)

    @classmethod
    def together(cls, parts: Sequence[RuleMatches]) -> RuleMatches:
        columns = zip(*((part.rules, part.start, part.end, part.rows) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def of(self, chosen: Array) -> RuleMatches:
        return RuleMatches(self.rules[chosen], self.start[chosen], self.end[chosen], self.rows[chosen])


@dataclass(slots=True)
class FamilyRun:
    """The families of one key while they run. All fields but the first are their state."""

    families: Families
    registers: Array
    heads: Array
    queues: Array
    arena: Array
    recent: Array
    slots: Array
    """The table of keys."""
    keys: int = 0
    dictionary: Dictionary = field(default_factory=Dictionary)
    rows: int = 0
    """The number of events so far."""
    kept_keys: int = 0
    """The keys that had instances when the others were forgotten."""
    limits: Limits = NO_LIMITS
    stopped: dict[int, Explosion | None] = field(default_factory=dict)
    """The rules that exceeded a limit: they find nothing more, and have no state. With the reason, unless a saved state
    names them."""

    @classmethod
    def start(cls, families: Families, limits: Limits = NO_LIMITS) -> FamilyRun:
        registers = np.zeros(REGISTERS, np.int64)
        registers[WAKE], registers[RECENT_AT], registers[LIMIT] = NEVER, -NEVER, FIRST_LIMIT
        return cls(
            families,
            registers,
            np.full(1, NONE, np.int64),
            families.queues.copy(),
            np.zeros(1 << 12, np.int64),
            np.zeros(64, np.int64),
            np.full(1 << 7, NONE, np.int64),
            limits=limits,
        )

    def step(self, batch: pa.RecordBatch) -> Iterator[RuleMatches]:
        """The matches of a batch of events, piece by piece."""
        for at in range(0, batch.num_rows, _PIECE):
            piece = batch.slice(at, _PIECE)
            time = np.array(time_of(piece.column(TIME)), np.int64)
            if self.keys > 2 * self.kept_keys + _PIECE and time[0] > self.registers[RECENT_AT]:
                self.forget_keys(int(time[0]))
            yield self._stepped(int(time[0]), time, self._key_numbers(piece), self.families.tests.classes(piece))

    def advance(self, time: int) -> RuleMatches:
        """The matches that become certain because no event comes before or at `time` any more."""
        none = np.empty(0, np.int64)
        return self._stepped(time, none, none, none)

    def finish(self) -> RuleMatches:
        return self.advance(END_OF_TIME)

    # --- keys and saved states ----------------------------------------------------------------------------------------

    def forget_keys(self, now: int) -> Sequence[object]:
        """Forgets the instances that do not matter at `now` or later, and the keys without any; returns the keys, each
        at its number. No event may have the time of the last one."""
        words = self.families.words_of_rules
        link, number = saved_instances.linked, saved_instances.renumbered_keys
        if self.registers[TOP] >= WORTH_COMPILING:
            link, number = machine_code(link), machine_code(number)
        self.registers[RECENTS] = 0
        self.registers[TOP] = link(self.arena, int(self.registers[TOP]), now, self.heads, self.queues, words)
        numbers = np.full(max(self.keys, 1), NONE, np.int64)
        self.kept_keys = int(number(self.arena, int(self.registers[TOP]), numbers))
        old = np.empty(max(self.keys, 1), np.int64)
        is_used = self.slots[1::2] != NONE
        old[self.slots[1::2][is_used]] = self.slots[::2][is_used]
        values = np.empty(self.kept_keys, np.int64)
        values[numbers[numbers != NONE]] = old[numbers != NONE]
        known: list[object] = [*values.tolist()]
        if self.families.has_codes:
            texts = {code: value for value, code in self.dictionary.codes.items()}
            known = [texts[code] for code in values.tolist()]
        self._know_keys(known)
        return known

    def _know_keys(self, known: Sequence[object]) -> None:
        """Makes the table of these keys, each with its number, and the lists of their instances."""
        if self.families.has_codes:
            self.dictionary = Dictionary({value: code for code, value in enumerate(known)}, len(known))
            values = np.arange(len(known))
        else:
            values = np.array(known, np.int64)
        size = 1 << max(7, (4 * len(values)).bit_length())
        self.slots = np.full(size, NONE, np.int64)
        self.heads = np.full(max(len(values), 1), NONE, np.int64)
        count, link = key_numbers, saved_instances.linked
        if len(values) >= WORTH_COMPILING or self.registers[TOP] >= WORTH_COMPILING:
            count, link = machine_code(count), machine_code(link)
        null = NULL_CODE if self.families.has_codes else NULL_INT
        _, self.keys = count(values, 0, null, self.slots, 0, np.empty(len(values), np.int64))
        self.kept_keys = self.keys
        words = self.families.words_of_rules
        link(self.arena, int(self.registers[TOP]), -NEVER, self.heads, self.queues, words)
        self.registers[WAKE] = min(
            (
                int(self.arena[queue[QUEUE_HEAD] + END] + queue[QUEUE_DELAY])
                for queue in self.queues.reshape(-1, QUEUE)
                if queue[QUEUE_HEAD] != NONE
            ),
            default=NEVER,
        )

    def saved(self, now: int) -> SavedFamilies:
        """What later events need, after all events of times up to `now`."""
        keys = self.forget_keys(now)
        return SavedFamilies(self._with_sets(), list(keys), self.rows, self.families.layout, (*self.stopped,))

    def _with_sets(self) -> Array:
        """The used part of the arena, with a set for each instance."""
        families, top = self.families, int(self.registers[TOP])
        if not len(families.latent):
            return self.arena[:top].copy()
        write: Callable[..., int] = saved_instances.with_sets
        if top + len(families.latent) >= WORTH_COMPILING:
            write = machine_code(write)
        needed = write(self.arena, top, *self._tables, np.empty(0, np.int64))
        made = np.zeros(max(needed, 1), np.int64)
        return made[: write(self.arena, top, *self._tables, made)].copy()

    @property
    def _tables(self) -> tuple[ClassRows, RuleTables]:
        """The tests on events and the families, as the kernels take them."""
        of, tests = self.families, self.families.tests
        return (
            ClassRows(
                tests.first_class,
                tests.row_of,
                tests.changes_from,
                tests.changes_to,
                tests.changes,
                tests.rows,
                tests.full,
            ),
            RuleTables(
                of.parts,
                of.latent,
                of.begins,
                of.starts,
                of.silences,
                of.words_of_rules,
                of.windows,
                of.limits,
                of.width,
            ),
        )

    @classmethod
    def restored(
        cls, families: Families, saved: SavedFamilies, new_rules: Array | None = None, limits: Limits = NO_LIMITS
    ) -> FamilyRun:
        """`new_rules` is the number of each rule of the saved state among those of `families` (-1: it is gone); None
        if they are the same. The stopped rules of the saved state have the numbers of `families`."""
        made, arena = cls.start(families, limits), saved.arena
        if new_rules is not None:
            arena = _carried(families, saved, new_rules)
        made.arena = _longer(made.arena, len(arena))
        made.arena[: len(arena)] = arena
        made.registers[TOP], made.registers[LIMIT] = len(arena), max(2 * len(arena), FIRST_LIMIT)
        made.rows = saved.rows
        made._know_keys(saved.keys)
        made._stop(dict.fromkeys(saved.stopped))
        return made

    @property
    def oldest(self) -> int:
        """The position of the oldest event that a later match may contain."""
        oldest = saved_instances.oldest_row
        if self.registers[TOP] >= WORTH_COMPILING:
            oldest = machine_code(oldest)
        return int(oldest(self.arena, self.registers, self.recent, self.rows))

    def _stepped(self, now: int, time: Array, keys: Array, classes: Array) -> RuleMatches:
        is_much = len(time) * self.families.tests.words >= WORTH_COMPILING
        function = machine_code(instances.step) if is_much else instances.step
        found, taken = [], 0
        out = np.empty(1 << 12, np.int64)
        while True:
            self.registers[OUT] = 0
            state = (self.registers, self.heads, self.queues, self.arena, self.recent)
            # The families are others once a limit has stopped some of their rules.
            taken = function(now, taken, self.rows, time, keys, classes, *self._tables, *state, out)
            width = self.families.width
            found.append(self._within_matches(out[: self.registers[OUT]].reshape(-1, width).copy()))
            room = int(self.registers[ROOM])
            if not room:
                break
            if self._exceeds_memory(room, int(time[taken]) if taken < len(time) else now, self.rows + taken):
                continue
            self.arena = _longer(self.arena, int(self.registers[TOP]) + room, self._next_limit)
            self.recent = _longer(self.recent, int(self.registers[RECENTS]) + 2 * room)
            out = _longer(out, 4 * width * room)
        self.rows += len(time)
        return self._by_rule(np.concatenate(found))

    def _by_rule(self, found: Array) -> RuleMatches:
        """The matches of each rule in the words of the output."""
        return RuleMatches.together(
            [self._of_words(found[at : at + _PIECE]) for at in range(0, max(len(found), 1), _PIECE)]
        )

    def _of_words(self, found: Array) -> RuleMatches:
        first_rules = self.families.words_of_rules[RULE::WORD_RECORD][found[:, OUT_WORD]]
        is_set = (found[:, OUT_BITS, None] >> np.arange(WORD)) & 1
        at, bit = np.nonzero(is_set)
        own = found[at]
        return RuleMatches(first_rules[at] + bit, own[:, OUT_START], own[:, OUT_END], own[:, OUT_ROWS:])

    # --- limits -------------------------------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        return 8 * int(self.registers[TOP])

    def _within_matches(self, found: Array) -> Array:
        """Some matches, which have all those of each event, without those of rules from the event on of which they have
        more than the limit. These rules are stopped."""
        most = self.limits.matches
        if most is None or len(found) <= most:
            return found
        families = self.families
        lengths = np.repeat(families.lengths, families.layout[:, 1] * families.layout[:, 2])
        last = found[np.arange(len(found)), OUT_ROWS + lengths[found[:, OUT_WORD]] - 1]
        for word in np.unique(found[:, OUT_WORD]).tolist():
            own = np.flatnonzero(found[:, OUT_WORD] == word)
            rows, counts = np.unique(last[own], return_counts=True)
            for row in rows[counts > most].tolist():
                bits = found[own[last[own] == row], OUT_BITS]
                for bit in range(WORD):
                    rule = int(families.words_of_rules[word * WORD_RECORD + RULE]) + bit
                    if rule not in self.stopped and int((bits >> bit & 1).sum()) > most:
                        self._stop({rule: TooManyMatches(most, row)})
                        found[own[last[own] >= row], OUT_BITS] &= ~np.int64(1 << bit)
        kept: Array = found[found[:, OUT_BITS] != 0]
        return kept

    def _exceeds_memory(self, room: int, now: int, row: int) -> bool:
        """Whether rules had to be stopped, since the state of one of them, or of all together, would exceed its
        limit."""
        own, total = self.limits.memory or NEVER, self.limits.total_memory or NEVER
        if self.state_bytes + 8 * room <= min(own, total):
            return False
        self._reclaim(now)
        counts = self._bytes_of_rules()
        problems: dict[int, Explosion] = {
            rule: TooMuchMemory(own, row, "its instances") for rule in np.flatnonzero(counts > own).tolist()
        }
        excess = self.state_bytes + 8 * room - total
        for rule in np.argsort(-counts, kind="stable").tolist():
            if excess <= 0 or not counts[rule]:
                break
            excess -= int(counts[rule])
            problems.setdefault(rule, TooMuchMemory(total, row, MOST))
        self._stop(problems)
        self._reclaim(now)
        return bool(problems)

    @property
    def _next_limit(self) -> int:
        """The length of the arena at which limits of memory are looked at again."""
        limits = (self.limits.memory, self.limits.total_memory)
        return min((limit // 8 for limit in limits if limit is not None and limit > 8 * len(self.arena)), default=NEVER)

    def stop_largest(self, limit: int) -> bool:
        """Stops the rule with the most state, since all queries exceed the limit together."""
        counts = self._bytes_of_rules()
        rule = int(np.argmax(counts))
        if counts[rule]:
            self._stop({rule: TooMuchMemory(limit, None, MOST)})
            self._reclaim(int(self.registers[RECENT_AT]) + 1)
        return bool(counts[rule])

    def _bytes_of_rules(self) -> Array:
        """The bytes of the instances of each rule; those of several rules count for each."""
        counts = np.zeros(self.families.rules, np.int64)
        count: Callable[..., None] = saved_instances.words_of_rules
        if self.registers[TOP] >= WORTH_COMPILING:
            count = machine_code(count)
        count(self.arena, int(self.registers[TOP]), *self._tables, counts)
        return 8 * counts

    def _stop(self, problems: Mapping[int, Explosion | None]) -> None:
        """Takes rules out of all instances, and begins none for them any more."""
        if not problems:
            return
        self.stopped |= problems
        self.families, masks = self.families.without(problems)
        remove = saved_instances.without_rules
        if self.registers[TOP] >= WORTH_COMPILING:
            remove = machine_code(remove)
        remove(self.arena, int(self.registers[TOP]), self.recent, int(self.registers[RECENTS]), masks)

    def _reclaim(self, now: int) -> None:
        """Releases the memory of instances that do not matter at `now` or later, unless events of the time of the last
        one may come."""
        if now <= self.registers[RECENT_AT]:
            return
        link = saved_instances.linked
        if self.registers[TOP] >= WORTH_COMPILING:
            link = machine_code(link)
        self.registers[RECENTS] = 0
        words = self.families.words_of_rules
        self.registers[TOP] = link(self.arena, int(self.registers[TOP]), now, self.heads, self.queues, words)

    def _key_numbers(self, batch: pa.RecordBatch) -> Array:
        """The number of the key of each event."""
        key, type_ = self.families.key, self.families.key_type
        numbers = np.zeros(batch.num_rows, np.int64)
        if key is None or type_ is None:
            return numbers
        column = attribute(batch, key)
        if column is None:
            return np.full(batch.num_rows, NONE, np.int64)
        is_code = self.families.has_codes
        values = self.dictionary.encode(column) if is_code else number_array(from_arrow(column), type_, len(column))
        is_much = len(values) >= WORTH_COMPILING
        count = machine_code(key_numbers) if is_much else key_numbers
        move = machine_code(rehashed) if is_much else rehashed
        null, values, done = NULL_CODE if is_code else NULL_INT, np.array(values, np.int64), 0
        while done < len(values):
            done, self.keys = count(values, done, null, self.slots, self.keys, numbers)
            if done < len(values):
                larger = np.full(4 * len(self.slots), NONE, np.int64)
                move(self.slots, larger)
                self.slots = larger
        if self.keys > len(self.heads):
            larger = np.full(2 * self.keys, NONE, np.int64)
            larger[: len(self.heads)] = self.heads
            self.heads = larger
        return numbers


@dataclass(frozen=True, slots=True)
class SavedFamilies:
    """The state of families: the used part of the arena, the key of each number, and the number of events so far.
    `layout` is that of the families that the words of the arena belong to."""

    arena: Array
    keys: list[object]
    rows: int
    layout: Array
    stopped: tuple[int, ...] = ()
    """The rules that exceeded a limit."""


def _carried(families: Families, saved: SavedFamilies, new_rules: Array) -> Array:
    """The instances of a saved state for other families."""
    first_rules = np.zeros(int((saved.layout[:, 1] * saved.layout[:, 2]).sum()), np.int64)
    for first_word, own, positions, first_rule in saved.layout.tolist():
        rules = first_rule + WORD * np.arange(own)
        first_rules[first_word : first_word + own * positions] = np.tile(rules, positions)
    first_words, strides = np.zeros(families.rules, np.int64), np.zeros(families.rules, np.int64)
    for first_word, own, _, first_rule in families.layout.tolist():
        of = slice(first_rule, first_rule + own * WORD)
        first_words[of] = first_word + np.repeat(np.arange(own), WORD)
        strides[of] = own
    carry = machine_code(saved_instances.carried) if len(saved.arena) >= WORTH_COMPILING else saved_instances.carried
    tables = (first_rules, new_rules, first_words, strides, families.words_of_rules)
    needed = carry(saved.arena, len(saved.arena), *tables, np.empty(0, np.int64))
    made = np.zeros(max(needed, 1), np.int64)
    return made[: carry(saved.arena, len(saved.arena), *tables, made)]


def _longer(array: Array, needed: int, most: int = NEVER) -> Array:
    """The array, or a copy twice as long (or with `most` elements) if `needed` elements do not fit."""
    if needed <= len(array):
        return array
    larger = np.zeros(max(needed, min(2 * len(array), most)), np.int64)
    larger[: len(array)] = array
    return larger
