"""Families as the arrays that their instances read (see `kernels.family.instances`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cepheid.deploy.event_tests import EventTest, EventTests
from cepheid.deploy.families import Rule, Shape, slots_of
from cepheid.kernels.family.event_bits import NO_ROW, WORD
from cepheid.kernels.family.instances import (
    BEGUN,
    CANCEL,
    CANCELS,
    COMBINATION,
    COMBINED,
    DECIDED,
    FIRST_WINDOW,
    FOLLOWING,
    GROUPED,
    IN_TIME,
    KEEPS,
    KIND,
    LAST_WINDOW,
    LATENT_REACH,
    NEVER,
    NONE,
    OUT_ROWS,
    PARTS,
    PASSES,
    PHI,
    REACH,
    RULE,
    RULES,
    SILENCE,
    SUCCESSOR,
    SUCCESSORS,
    THETA,
    TIES,
    WINDOW,
    WORD_RECORD,
)
from cepheid.physical import Kind, kind_of
from cepheid.runtime.kernel import Array
from cepheid.types import Type

MANY_WORDS = 8
"""The number of words of first events from which on instances are latent."""


@dataclass(slots=True)
class _Member:
    """A family and its words: those of its tests in an event's bits, by position and part."""

    shape: Shape
    rules: Sequence[Rule]
    known_types: frozenset[str] | None
    places: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def words(self) -> int:
        return Families.words(len(self.rules))

    @property
    def reach(self) -> int:
        """The longest time from the first event to the last."""
        longest = (
            max(rule.limits[number] for rule in self.rules)
            for number, (since, _) in enumerate(self.shape.windows)
            if since == 0
        )
        return min(longest, default=NEVER)

    @property
    def may_be_latent(self) -> bool:
        return self.shape.delay is None and self.shape.strategy is None and self.reach < NEVER

    def needs(self, position: int, part: str) -> bool:
        """Whether some rule tests this part of a position."""
        slots = slots_of(self.shape)
        if (position, part) not in slots:
            return False
        number = slots.index((position, part))
        return part == "cancels" or not all(_is_trivial(rule, number, self.known_types) for rule in self.rules)


@dataclass(slots=True)
class _Words:
    """Gives the words of an event's bits to tests, one after the other."""

    width: int = 0
    tested: list[tuple[int, int, _Member]] = field(default_factory=list)
    """The first word of a test, its number in a rule, and the family."""

    def place(self, member: _Member, slot: tuple[int, str]) -> None:
        slots = slots_of(member.shape)
        if slot in slots:
            member.places[slot] = self.width
            self.tested.append((self.width, slots.index(slot), member))
        self.width += member.words

    def place_all(self, members: Iterable[_Member], slot: tuple[int, str]) -> int:
        """Returns the first of the words."""
        first = self.width
        for member in members:
            self.place(member, slot)
        return first


@dataclass(frozen=True, slots=True)
class Families:
    """The families of one key as the arrays that the instances read. `rules` counts the rules of all families, family
    by family."""

    key: str | None
    key_type: Type | None
    tests: EventTests
    parts: Array
    latent: Array
    begins: Array
    starts: Array
    silences: Array
    words_of_rules: Array
    windows: Array
    limits: Array
    queues: Array
    """Empty, at the start."""
    width: int
    """The length of a match."""
    layout: Array
    """Of each family: the first of its words, its words at one position, its positions, and its first rule."""
    begin_words: Array
    """Of each family: the first of the words of its first event in an event's bits."""
    lengths: Array
    """Of each family: the number of its events."""

    @classmethod
    def of(
        cls,
        members: Sequence[tuple[Shape, Sequence[Rule]]],
        types: Mapping[str, Type],
        lacks: Mapping[str, tuple[str, ...]],
        known_types: frozenset[str] | None,
    ) -> Families:
        """The families with their rules. `known_types` are all event types of the input, if they are known."""
        families = [_Member(shape, rules, known_types) for shape, rules in members]
        placed, parts, latent = _placed(families)
        key = members[0][0].key
        starts: list[tuple[int, int]] = []
        by_position: list[tuple[int, int]] = []
        words: list[list[int]] = []
        windows: list[tuple[int, int, int, int]] = []
        limits: list[int] = []
        queues: list[tuple[int, ...]] = []
        layout: list[tuple[int, int, int, int]] = []
        rules_before = 0
        for member in families:
            shape, rules, own = member.shape, member.rules, member.words
            first_window = WINDOW * len(windows)
            for number, (since, at) in enumerate(shape.windows):
                own_limits = [rule.limits[number] for rule in rules]
                windows.append((since, at, len(limits) - rules_before, max(own_limits)))
                limits += [*own_limits, *([0] * (own * WORD - len(rules)))]
            begin, first_word = member.places[0, "passes"], len(words)
            if shape.delay is not None:
                queues.append((begin, own, first_word, shape.delay, NONE, NONE))
            elif not any(member is one for one in latent):
                of_order = starts if shape.strategy is None else by_position
                of_order += [(begin + word, first_word + word) for word in range(own)]
            kind = SUCCESSOR if shape.delay is None else SILENCE
            last = max(shape.length - 2, 0)
            layout.append((first_word, own, last + 1, rules_before))
            for position in range(last + 1):
                following = position + 1 if shape.delay is None else position
                places = [member.places.get((following, part), NONE) for part in ("passes", "keeps", "cancels")]
                places[0] = NONE if shape.delay is not None else places[0]
                for word in range(own):
                    record = dict.fromkeys(range(WORD_RECORD), 0)
                    for field_, place in zip((PASSES, KEEPS, CANCELS), places, strict=True):
                        record[field_] = NONE if place == NONE else place + word
                    record[FOLLOWING] = NONE if position == last else len(words) + own
                    record[RULE] = rules_before + word * WORD
                    record[FIRST_WINDOW], record[LAST_WINDOW] = first_window, WINDOW * len(windows)
                    record[KIND] = COMBINATION if shape.combines else kind
                    record[REACH] = member.reach
                    record[TIES] = int(shape.strategy is not None)
                    words.append(list(record.values()))
            rules_before += own * WORD
        parts[IN_TIME] = 2 * len(starts)
        first_words = {id(one): first for one, (first, *_) in zip(families, layout, strict=True)}
        tests = EventTests(placed.width, types, lacks)
        for first, number, member in placed.tested:
            for at, rule in enumerate(member.rules):
                tests.add(first * WORD + at, _without_types(rule.tests[number], known_types))
        tests.build()
        return cls(
            key,
            None if key is None else types[key],
            tests,
            parts,
            np.array([first_words[id(one)] + at for one in latent for at in range(one.words)], np.int64),
            _begins(tests, int(parts[RULES])),
            np.array([*starts, *by_position], np.int64).reshape(-1),
            np.array([begin + at for begin, own, *_ in queues for at in range(own)], np.int64),
            np.array(words, np.int64).reshape(-1),
            np.array(windows, np.int64).reshape(-1),
            np.array(limits or [0], np.int64),
            np.array(queues, np.int64).reshape(-1),
            OUT_ROWS + max(shape.length for shape, _ in members),
            np.array(layout, np.int64),
            np.array([member.places[0, "passes"] for member in families], np.int64),
            np.array([member.shape.length for member in families], np.int64),
        )

    def without(self, rules: Iterable[int]) -> tuple[Families, Array]:
        """These families, of which some rules begin no more, with the same numbers; and for each word of rules the bits
        of those rules."""
        begin, masks = np.zeros(self.tests.words, np.int64), np.zeros(len(self.words_of_rules) // WORD_RECORD, np.int64)
        for rule in rules:
            (at,) = np.flatnonzero((self.layout[:, 3] <= rule) & (rule < self.layout[:, 3] + self.layout[:, 1] * WORD))
            first_word, own, positions, first_rule = self.layout[at].tolist()
            word, bit = divmod(rule - first_rule, WORD)
            begin[self.begin_words[at] + word] |= 1 << bit
            masks[first_word + word : first_word + own * positions : own] |= 1 << bit
        tests = self.tests.without(begin)
        return replace(self, tests=tests, begins=_begins(tests, int(self.parts[RULES]))), masks

    @property
    def read(self) -> list[str]:
        """The attributes that the tests and the key read."""
        return [*self.tests.attributes, *([] if self.key is None else [self.key])]

    @property
    def has_codes(self) -> bool:
        """Whether keys are codes of strings."""
        return self.key_type is not None and kind_of(self.key_type) is Kind.CODE

    @property
    def rules(self) -> int:
        """The numbers of rules, with those that are not used."""
        return int((self.layout[:, 1] * WORD).sum())

    @staticmethod
    def words(rules: int) -> int:
        """The words of a set of rules of one family."""
        return -(-rules // WORD)


def _placed(families: Sequence[_Member]) -> tuple[_Words, Array, list[_Member]]:
    """The words of all tests, the parts of the latent instances, and their families in the order of their words."""
    bounded = [member for member in families if member.may_be_latent]
    if sum(member.words for member in bounded) < MANY_WORDS:
        bounded = []
    successors = [member for member in bounded if not member.shape.combines]
    decided = [member for member in successors if member.needs(1, "passes") or member.needs(1, "cancels")]
    others = [member for member in successors if all(member is not one for one in decided)]
    combined = [member for member in bounded if member.shape.combines]
    latent = [*decided, *others, *combined]
    rest = [member for member in families if all(member is not one for one in latent)]
    words, parts = _Words(), np.zeros(PARTS, np.int64)
    for members, field_ in ((decided, DECIDED), (others, SUCCESSORS), (combined, RULES), (rest, BEGUN)):
        words.place_all(members, (0, "passes"))
        parts[field_] = words.width
    parts[PHI] = words.place_all(decided, (1, "passes"))
    parts[THETA] = words.place_all([*decided, *others], (1, "keeps"))
    parts[CANCEL] = words.place_all(decided, (1, "cancels"))
    parts[COMBINED] = words.place_all(combined, (1, "passes"))
    parts[GROUPED] = words.width
    parts[LATENT_REACH] = max((member.reach for member in latent), default=0)
    for member in families:
        for slot in slots_of(member.shape):
            if slot not in member.places and member.needs(*slot):
                words.place(member, slot)
    return words, parts, latent


def _begins(tests: EventTests, rules: int) -> Array:
    """Whether an event with a class may begin some of the rules of latent instances, which have the first words."""
    begins: Array = tests.changes_to > tests.changes_from
    begins |= tests.row_of == NO_ROW
    for number in np.flatnonzero(~begins).tolist():
        row = tests.row_of[number]
        begins[number] = tests.rows[row : row + rules].any()
    return begins


def _without_types(test: EventTest, known_types: frozenset[str] | None) -> EventTest:
    """The test without its types, if all events of the input have one of them."""
    return EventTest((), test.conditions) if known_types is not None and known_types <= {*test.types} else test


def _is_trivial(rule: Rule, number: int, known_types: frozenset[str] | None) -> bool:
    """Whether every event passes a test of a rule."""
    test = _without_types(rule.tests[number], known_types)
    return not test.types and not test.conditions
