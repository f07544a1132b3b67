"""The instances of families in saved states and limits: what Python calls between the batches (see `instances`).

The classes of a latent instance belong to one table of tests, so a saved state has sets only.
"""

from __future__ import annotations

import numpy as np

from cepheid.kernels.family.event_bits import NO_ROW, WORD, ClassRows, lowest_bit
from cepheid.kernels.family.instances import (
    COMBINES,
    DEAD,
    END,
    EVENTS,
    KEY,
    LATENT,
    LATER,
    NONE,
    POSITION,
    RECENT,
    RECENTS,
    RULE,
    RULES,
    SIZE,
    SUCCESSORS,
    TOP,
    WORD_RECORD,
    RuleTables,
    completed,
    reclaim,
)
from cepheid.runtime.jit import entry, njit


@entry
def oldest_row(arena: np.ndarray, registers: np.ndarray, recent: np.ndarray, least: int) -> int:
    """The first row of the instances that are not dropped, at most `least`."""
    at = 0
    while at < registers[TOP]:
        if arena[at + DEAD] == 0 and arena[at + EVENTS] < least:
            least = arena[at + EVENTS]
        at += arena[at + SIZE]
    for at in range(0, registers[RECENTS], RECENT):
        least = min(least, arena[recent[at] + EVENTS])
    return least


@entry
def linked(arena: np.ndarray, top: int, now: int, heads: np.ndarray, queues: np.ndarray, words: np.ndarray) -> int:
    """`reclaim` for Python; then the time of the next silence is that of the first block of some queue."""
    return reclaim(arena, top, now, heads, queues, words)


@entry
def renumbered_keys(arena: np.ndarray, top: int, numbers: np.ndarray) -> int:
    """Numbers the keys that instances have from 0, in their order. `numbers` is -1 for each old number at first, and
    then the new one. Returns how many there are."""
    at, count = 0, 0
    while at < top:
        key = arena[at + KEY]
        if key != NONE:
            if numbers[key] == NONE:
                numbers[key] = count
                count += 1
            arena[at + KEY] = numbers[key]
        at += arena[at + SIZE]
    return count


@entry
def carried(
    arena: np.ndarray,
    top: int,
    first_rules: np.ndarray,
    new_rules: np.ndarray,
    first_words: np.ndarray,
    strides: np.ndarray,
    words: np.ndarray,
    made: np.ndarray,
) -> int:
    """Writes the instances for other rules: the new number of each rule is in `new_rules` (-1: it is gone). The word
    of a new rule at position p is `first_words` + p * `strides`. Returns the size; an empty `made` only asks for a
    size that is large enough."""
    at, to = 0, 0
    writes = made.shape[0] > 0
    while at < top:
        position = arena[at + POSITION]
        pairs = to + EVENTS + 2 * (position + 1)
        end = pairs
        for pair in range(at + EVENTS + 2 * (position + 1), at + arena[at + SIZE], 2):
            rest = arena[pair + 1]
            while rest != 0:
                low = rest & -rest
                rest ^= low
                rule = new_rules[first_rules[arena[pair]] + lowest_bit(low)]
                if rule < 0:
                    continue
                if not writes:
                    end += 2
                    continue
                word, bit = first_words[rule] + position * strides[rule], rule % WORD
                place = pairs
                while place < end and made[place] != word:
                    place += 2
                if place == end:
                    made[place] = word
                    made[place + 1] = 0
                    end += 2
                made[place + 1] |= 1 << bit
        if end > pairs:
            if writes:
                for i in range(EVENTS, EVENTS + 2 * (position + 1)):
                    made[to + i] = arena[at + i]
                row, t = arena[at + EVENTS + position], arena[at + EVENTS + 2 * position + 1]
                completed(made, to, end, position, arena[at + KEY], row, t, words)
                if arena[at + LATER] >= 0:
                    made[to + LATER] = to
            to = end
        at += arena[at + SIZE]
    return to


@njit
def latent_set(arena: np.ndarray, block: int, of_classes: ClassRows, bits: np.ndarray) -> None:
    """The set of a latent instance, in `bits`."""
    first_class, row_of, changes_from, changes_to, changes, rows, full = of_classes
    words = bits.shape[0]
    for w in range(words):
        bits[w] = full[w]
    for a in range(first_class.shape[0]):
        c = arena[block + EVENTS + 2 + a]
        if row_of[c] == NO_ROW:
            continue
        for i in range(changes_from[c], changes_to[c]):
            rows[row_of[c] + changes[i] // WORD] ^= 1 << (changes[i] % WORD)
        for w in range(words):
            bits[w] &= rows[row_of[c] + w]
        for i in range(changes_from[c], changes_to[c]):
            rows[row_of[c] + changes[i] // WORD] ^= 1 << (changes[i] % WORD)


@entry
def words_of_rules(arena: np.ndarray, top: int, of_classes: ClassRows, rules: RuleTables, counts: np.ndarray) -> None:
    """Adds to the count of each rule the sizes of the instances that it is alive in."""
    parts, latent, words = rules.parts, rules.latent, rules.words
    bits = np.zeros(parts[RULES], np.int64)
    at = 0
    while at < top:
        size, is_latent = arena[at + SIZE], arena[at + LATER] <= LATENT
        first = at + EVENTS + 2 * (arena[at + POSITION] + 1)
        pairs = parts[RULES] if is_latent else (at + size - first) >> 1
        if is_latent:
            latent_set(arena, at, of_classes, bits)
            for w in range(parts[SUCCESSORS] if arena[at + LATER] == COMBINES else 0):
                bits[w] = 0
        for pair in range(pairs):
            word, rest = (
                (latent[pair], bits[pair]) if is_latent else (arena[first + 2 * pair], arena[first + 2 * pair + 1])
            )
            while rest != 0:
                low = rest & -rest
                rest ^= low
                counts[words[word * WORD_RECORD + RULE] + lowest_bit(low)] += size
        at += size


@entry
def without_rules(arena: np.ndarray, top: int, recent: np.ndarray, recents: int, masks: np.ndarray) -> None:
    """Takes rules out of all sets: those with the bits `masks` of each word. An instance without a rule is dropped; the
    set of latent ones is computed later."""
    at = 0
    while at < top:
        size = arena[at + SIZE]
        if arena[at + LATER] > LATENT:
            alive = 0
            for pair in range(at + EVENTS + 2 * (arena[at + POSITION] + 1), at + size, 2):
                arena[pair + 1] &= ~masks[arena[pair]]
                alive |= arena[pair + 1]
            if alive == 0:
                arena[at + DEAD] = 1
        at += size
    for at in range(0, recents, RECENT):
        recent[at + 2] &= ~masks[recent[at + 1]]


@entry
def with_sets(arena: np.ndarray, top: int, of_classes: ClassRows, rules: RuleTables, made: np.ndarray) -> int:
    """Writes the instances with sets instead of latent ones, which are left out if no rule waits. Returns the size; an
    empty `made` only asks for a size that is large enough."""
    parts, latent, words = rules.parts, rules.latent, rules.words
    bits = np.zeros(parts[RULES], np.int64)
    at, to, writes = 0, 0, made.shape[0] > 0
    while at < top:
        size, first = arena[at + SIZE], 0 if arena[at + LATER] != COMBINES else parts[SUCCESSORS]
        if arena[at + LATER] > LATENT or not writes:
            for i in range(size if writes else 0):
                made[to + i] = arena[at + i]
            to += size if arena[at + LATER] > LATENT else EVENTS + 2 + 2 * parts[RULES]
            at += size
            continue
        latent_set(arena, at, of_classes, bits)
        end = to + EVENTS + 2
        for w in range(first, parts[RULES]):
            if bits[w] != 0:
                made[end] = latent[w]
                made[end + 1] = bits[w]
                end += 2
        if end > to + EVENTS + 2:
            made[to + EVENTS + 1] = arena[at + END]
            to = completed(made, to, end, 0, arena[at + KEY], arena[at + EVENTS], arena[at + END], words)
        at += size
    return to
