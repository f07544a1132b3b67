r"""The instances of families: composite events that wait for the next one, each with the set of rules still alive.

An instance is a block of an array, the *arena*, in the order of creation, and holds the rules of all families that
have found the same events. Its set is a list of pairs: the number of a *word* of rules, and the bits of those that
are alive. The record of a word says which words of an event's bits are its φ (the rules that the event is a successor
for), its θ (those that keep it) and what cancels it. The instances of one key form a list.

An event of a later time than the end of an instance decides the rules for which it is a successor: they leave the
set, and those that θ and the windows keep move on to a new instance, or are matches. Other events of the same time
are successors, too (NEXT §3.2): so the rules that left the set stay *recent* until time passes. Families that combine
(SASE) keep their sets.

In families that go by position (SASE+), an event of the same time may follow, and no other one of its time is a
successor, too. They have instances of their own, which end one tick before the time of their last event.

A silence, `(A @ d) \ B`, waits for a time instead: its instances form a queue in the order of creation, because all
rules of the family have the same delay.

Where there are many rules, most events begin some, and most of these instances end without another event. So they are
*latent*: such a block has the classes of its event's attributes instead of a set. The set is computed when the next
event of the key comes, in the same loops as the tests of that event: the words at positions 0 and 1 have one order.
The rules that stay get a block with a set. Families that combine leave the block latent.

No array grows in the loop over events: `step` stops before an event that may need more room, and says how much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cepheid.kernels.family.event_bits import NO_ROW, WORD, ClassRows, lowest_bit
from cepheid.runtime.jit import entry, njit
from cepheid.runtime.prefetch import AHEAD, SOON, prefetch

SIZE, POSITION, KEY, NEXT, END, UNTIL, DEAD, LATER, EVENTS = range(9)
"""The fields of a block: its length, the position of its last event, its key, the next block of its list, the end of
the composite event, the last time at which it matters, whether it is dropped, the next block of its queue, and then
the rows and the times of its events and the pairs of its set (or the classes of a latent one)."""
PASSES, KEEPS, CANCELS, FOLLOWING, RULE, FIRST_WINDOW, LAST_WINDOW, KIND, REACH, TIES, WORD_RECORD = range(11)
"""The fields of a word of rules that wait: the words of φ, of θ and of what cancels in an event's bits (-1: all pass,
none cancels), the word at the next position (-1: the next event is the last), the number of its first rule, its
windows, its kind, the longest time from the first event to the last, and 1 if an event of the same time may follow
(by position), else 0."""
SUCCESSOR, COMBINATION, SILENCE = range(3)
"""The kinds of families."""
FROM, AT, LIMITS, LONGEST, WINDOW = range(5)
"""The fields of a window: the position that it counts from, the position that it is tested at, the limit of rule 0, and
the longest of its limits."""
QUEUE_BITS, QUEUE_WORDS, QUEUE_FIRST, QUEUE_DELAY, QUEUE_HEAD, QUEUE_TAIL, QUEUE = range(7)
"""The fields of a family of silences: the words of its first event in an event's bits, its words, the first of them,
its delay, and the first and the last block of its queue."""
TOP, OUT, WAKE, RECENTS, RECENT_AT, LIMIT, RECLAIMED, PEAK, MADE, OLDEST, ROOM, REGISTERS = range(12)
"""The registers: the used part of the arena and of the output, the time of the next silence, the recent rules and
their time, the size at which memory is reclaimed, how often it was, the largest arena, the instances made, the oldest
row that a later match may contain, and the room that the next event needs."""
FIRST_LIMIT = 1 << 17
"""Memory is reclaimed only if there is more."""
NEVER = 1 << 62
NONE = -1
LATENT, COMBINES = -2, -3
"""The queue of a block without a set: all its rules wait, or only those of families that combine."""
DECIDED, SUCCESSORS, RULES, BEGUN, PHI, THETA, CANCEL, COMBINED, GROUPED, LATENT_REACH, IN_TIME, PARTS = range(12)
"""The words of latent instances in an event's bits. Those of the first events come first: up to `DECIDED` of rules with
φ or what cancels, up to `SUCCESSORS` of other successors, up to `RULES` of those that combine. Up to `BEGUN` the words
of other first events. Then, in the order of the first events, those of the second ones: φ, θ and what cancels, and φ
of those that combine; up to `GROUPED`. And how long latent instances matter, and the part of `starts` that goes by
time."""
RECENT = 3
"""The length of a record of recent rules: block, word, bits."""
OUT_WORD, OUT_BITS, OUT_START, OUT_END, OUT_ROWS = range(5)
"""The fields of a match of some rules of one word, then the rows of its events."""


class RuleTables(NamedTuple):
    """What families are as arrays."""

    parts: np.ndarray
    latent: np.ndarray
    """The words of the rules of latent instances."""
    begins: np.ndarray
    """Whether some of these rules may begin with an event of each class."""
    starts: np.ndarray
    """Pairs: a word of an event's bits, and the word of the rules that it begins."""
    silences: np.ndarray
    """The words that begin silences."""
    words: np.ndarray
    windows: np.ndarray
    limits: np.ndarray
    width: int
    """The words of a match in the output."""


@njit
def within(
    arena: np.ndarray,
    block: int,
    words: np.ndarray,
    record: int,
    windows: np.ndarray,
    limits: np.ndarray,
    t: int,
    found: int,
) -> int:
    """The rules of a word whose windows an event at time `t` closes in time."""
    position, rule = arena[block + POSITION], words[record + RULE]
    times = block + EVENTS + position + 1
    for at in range(words[record + FIRST_WINDOW], words[record + LAST_WINDOW], WINDOW):
        if windows[at + AT] != position + 1:
            continue
        elapsed = t - arena[times + windows[at + FROM]]
        if elapsed > windows[at + LONGEST]:
            return 0
        rest = found
        while rest != 0:
            low = rest & -rest
            rest ^= low
            if elapsed > limits[windows[at + LIMITS] + rule + lowest_bit(low)]:
                found ^= low
    return found


@njit
def reclaim(arena: np.ndarray, top: int, now: int, heads: np.ndarray, queues: np.ndarray, words: np.ndarray) -> int:
    """Moves the instances that still matter to the front of the arena, and links them anew. Returns the new top."""
    for i in range(heads.shape[0]):
        heads[i] = NONE
    for queue in range(0, queues.shape[0], QUEUE):
        queues[queue + QUEUE_HEAD] = NONE
        queues[queue + QUEUE_TAIL] = NONE
    at, kept = 0, 0
    while at < top:
        size = arena[at + SIZE]
        if arena[at + DEAD] == 0 and arena[at + UNTIL] >= now:
            if kept != at:
                for i in range(size):
                    arena[kept + i] = arena[at + i]
            key = arena[kept + KEY]
            if key != NONE:
                arena[kept + NEXT] = heads[key]
                heads[key] = kept
            if arena[kept + LATER] >= 0:
                enqueue(arena, kept, queues, queue_of(arena, kept, queues))
            kept += size
        at += size
    return kept


@njit
def queue_of(arena: np.ndarray, block: int, queues: np.ndarray) -> int:
    """The queue of a silence, by its first word."""
    word, queue = arena[block + EVENTS + 2], 0
    while word < queues[queue + QUEUE_FIRST] or word >= queues[queue + QUEUE_FIRST] + queues[queue + QUEUE_WORDS]:
        queue += QUEUE
    return queue


@njit
def enqueue(arena: np.ndarray, block: int, queues: np.ndarray, queue: int) -> None:
    """Adds a silence to its queue. The last block of a queue is its own successor."""
    last = queues[queue + QUEUE_TAIL]
    if last == NONE:
        queues[queue + QUEUE_HEAD] = block
    else:
        arena[last + LATER] = block
    arena[block + LATER] = block
    queues[queue + QUEUE_TAIL] = block


@njit
def room_of_key(arena: np.ndarray, block: int, t: int, latent: int) -> tuple[int, int]:
    """The words that one event can add to the instances of a list (`latent` for each latent one), and which of them
    may still matter: 0 none, 1 latent ones only, 2 others too."""
    room, alive = 0, 0
    while block != NONE:
        is_latent = arena[block + LATER] <= LATENT
        room += latent if is_latent else arena[block + SIZE] + 2
        if arena[block + UNTIL] >= t and arena[block + END] < t:
            alive = max(alive, 1 if is_latent else 2)
        block = arena[block + NEXT]
    return room, alive


@njit
def write_match(
    out: np.ndarray, used: int, word: int, bits: int, arena: np.ndarray, block: int, position: int, row: int, t: int
) -> None:
    """Writes the queries of a word that a block and one more event, at `row`, complete at time `t`."""
    out[used + OUT_WORD] = word
    out[used + OUT_BITS] = bits
    out[used + OUT_START] = arena[block + EVENTS + position + 1]
    out[used + OUT_END] = t
    for i in range(position + 1):
        out[used + OUT_ROWS + i] = arena[block + EVENTS + i]
    out[used + OUT_ROWS + position + 1] = row


@entry
def step(
    now: int,
    start: int,
    first: int,
    time: np.ndarray,
    keys: np.ndarray,
    classes: np.ndarray,
    of_classes: ClassRows,
    rules: RuleTables,
    registers: np.ndarray,
    heads: np.ndarray,
    queues: np.ndarray,
    arena: np.ndarray,
    recent: np.ndarray,
    out: np.ndarray,
) -> int:
    """Takes the events of a batch from `start` on, or the time that has passed without any. Returns how many were
    taken: it stops if the arrays need room for `registers[ROOM]` more words (0: they do not)."""
    first_class, row_of, changes_from, changes_to, changes, rows, full = of_classes
    parts, latent, begins, starts, silences, words, windows, limits, width = rules
    bits, scratch = np.zeros(full.shape[0], np.int64), np.zeros(full.shape[0], np.int64)
    before_bits = np.zeros(parts[RULES], np.int64)
    top, used, wake, recents = registers[TOP], registers[OUT], registers[WAKE], registers[RECENTS]
    of_rules, of_latent = parts[RULES], 4 * parts[RULES] + 2 * EVENTS + 8
    largest = 2 * (EVENTS + 2) + starts.shape[0] + EVENTS + 2 + first_class.shape[0]
    for queue in range(0, queues.shape[0], QUEUE):
        largest += EVENTS + 2 + 2 * queues[queue + QUEUE_WORDS]
    events, attributes, width_of_bits = time.shape[0], first_class.shape[0], full.shape[0]
    registers[ROOM] = 0
    e = start
    while True:
        moment = time[e] if e < events else now if events == 0 else -NEVER
        # --- silences that have ended ---
        if wake <= moment:
            wake, room = NEVER, 0
            for queue in range(0, queues.shape[0], QUEUE):
                delay = queues[queue + QUEUE_DELAY]
                block = queues[queue + QUEUE_HEAD]
                while block != NONE and arena[block + END] + delay <= moment:
                    if arena[block + DEAD] == 0:
                        room = width * (arena[block + SIZE] >> 1)
                        if used + room > out.shape[0]:
                            break
                        arena[block + DEAD] = 1
                        for pair in range(block + EVENTS + 2, block + arena[block + SIZE], 2):
                            if arena[pair + 1] != 0:
                                out[used + OUT_WORD] = arena[pair]
                                out[used + OUT_BITS] = arena[pair + 1]
                                out[used + OUT_START] = arena[block + END]
                                out[used + OUT_END] = arena[block + END] + delay
                                out[used + OUT_ROWS] = arena[block + EVENTS]
                                used += width
                    following = arena[block + LATER]
                    block = NONE if following == block else following
                    queues[queue + QUEUE_HEAD] = block
                    if block == NONE:
                        queues[queue + QUEUE_TAIL] = NONE
                if block != NONE:
                    wake = min(wake, arena[block + END] + delay)
            if wake <= moment:
                registers[ROOM] = room
                break
        if e >= events:
            break
        t, key, row = time[e], keys[e], first + e
        if t > registers[RECENT_AT]:
            recents = 0
            if top > registers[LIMIT]:
                registers[PEAK] = max(registers[PEAK], top)
                top = reclaim(arena, top, t, heads, queues, words)
                registers[LIMIT] = max(2 * top, FIRST_LIMIT)
                registers[RECLAIMED] += 1
        # --- room ---
        room = largest + (EVENTS + 20) * recents
        needed = parts[BEGUN] if recents == 0 else width_of_bits
        if key != NONE:
            of_key, alive = room_of_key(arena, heads[key], t, of_latent)
            room += of_key
            if alive > 0:
                needed = max(needed, parts[GROUPED] if alive == 1 else width_of_bits)
        is_full = top + room > arena.shape[0] or used + width * room > out.shape[0]
        if is_full or recents + 2 * room > recent.shape[0]:
            registers[ROOM] = room
            break
        if e + AHEAD < events and keys[e + AHEAD] != NONE:
            prefetch(heads, keys[e + AHEAD])
            if keys[e + SOON] != NONE and heads[keys[e + SOON]] != NONE:
                prefetch(arena, heads[keys[e + SOON]])
                prefetch(arena, heads[keys[e + SOON]] + 8)
                prefetch(arena, heads[keys[e + SOON]] + 16)
        # --- the tests that the event passes (here, because a call with so many arrays takes longer) ---
        begun, may_begin = False, of_rules > 0 and key != NONE
        tested = needed - of_rules
        own, other = bits[of_rules:needed], scratch[of_rules:needed]  # views: their indexes are not negative
        for a in range(attributes):
            c = first_class[a] + classes[a * events + e]
            at = row_of[c]
            if at == NO_ROW:
                continue
            may_begin = may_begin and begins[c]
            row_bits = rows[at + of_rules : at + needed]
            low, high = changes_from[c], changes_to[c]
            if not begun:
                for w in range(tested):
                    own[w] = row_bits[w]
                for i in range(low, high):
                    bits[changes[i] // WORD] ^= 1 << (changes[i] % WORD)
                begun = True
            elif low == high:
                for w in range(tested):
                    own[w] &= row_bits[w]
            else:
                for w in range(tested):
                    other[w] = row_bits[w]
                for i in range(low, high):
                    scratch[changes[i] // WORD] ^= 1 << (changes[i] % WORD)
                for w in range(tested):
                    own[w] &= other[w]
        if not begun:
            for w in range(of_rules, needed):
                bits[w] = full[w]
        is_lone = e + 1 < events and time[e + 1] > t
        # --- the instances of the key ---
        before_recents = recents
        block, before = NONE if key == NONE else heads[key], NONE
        began = top
        while block != NONE:
            following = arena[block + NEXT]
            if arena[block + END] >= t:
                before, block = block, following
                continue
            alive, made = 0, top
            is_latent = arena[block + LATER] <= LATENT
            if is_latent and arena[block + UNTIL] >= t:
                # --- the set of a latent instance, as for the bits of the event ---
                begun = False
                for a in range(attributes):
                    c = arena[block + EVENTS + 2 + a]
                    at = row_of[c]
                    if at == NO_ROW:
                        continue
                    row_bits = rows[at : at + width_of_bits]
                    low, high = changes_from[c], changes_to[c]
                    for w in range(of_rules):
                        scratch[w] = row_bits[w]
                    for i in range(low, high):
                        scratch[changes[i] // WORD] ^= 1 << (changes[i] % WORD)
                    if not begun:
                        for w in range(of_rules):
                            before_bits[w] = scratch[w]
                        begun = True
                    else:
                        for w in range(of_rules):
                            before_bits[w] &= scratch[w]
                if not begun:
                    for w in range(of_rules):
                        before_bits[w] = full[w]
                decided, successors = parts[DECIDED], parts[SUCCESSORS]
                is_new = arena[block + LATER] == LATENT
                for w in range(of_rules):
                    scratch[w] = before_bits[w] if is_new or w >= successors else 0
                second = bits[parts[PHI] : parts[PHI] + decided]
                for w in range(decided):
                    scratch[w] &= second[w]
                second = bits[parts[THETA] : parts[THETA] + successors]
                for w in range(successors):
                    scratch[w] &= second[w]
                second, other = bits[parts[COMBINED] : parts[GROUPED]], scratch[successors:of_rules]
                for w in range(of_rules - successors):
                    other[w] &= second[w]
                pairs = top + EVENTS + 4
                for w in range(of_rules):
                    found, record = scratch[w], latent[w] * WORD_RECORD
                    if found != 0:
                        found = within(arena, block, words, record, windows, limits, t, found)
                    if found == 0:
                        continue
                    if words[record + FOLLOWING] >= 0:
                        arena[pairs] = words[record + FOLLOWING]
                        arena[pairs + 1] = found
                        pairs += 2
                    else:
                        write_match(out, used, latent[w], found, arena, block, 0, row, t)
                        used += width
                top = extended(arena, block, top, pairs, row, t, words)
                if is_new:
                    pairs = top + EVENTS + 2
                    for w in range(decided):
                        gone = bits[parts[PHI] + w] | bits[parts[CANCEL] + w]
                        left = before_bits[w] & ~gone
                        if left != 0:
                            arena[pairs] = latent[w]
                            arena[pairs + 1] = left
                            pairs += 2
                    if pairs > top + EVENTS + 2:
                        before_row, before_time = arena[block + EVENTS], arena[block + END]
                        top = completed(arena, top, pairs, 0, key, before_row, before_time, words)
                    for w in range(0 if is_lone else successors):
                        gone = before_bits[w]
                        if w < decided:
                            gone &= bits[parts[PHI] + w] | bits[parts[CANCEL] + w]
                        if gone != 0:
                            recent[recents] = block
                            recent[recents + 1] = latent[w]
                            recent[recents + 2] = gone
                            recents += RECENT
                            registers[RECENT_AT] = t
                    arena[block + LATER] = COMBINES
                alive = 1 if successors < of_rules else 0
            elif arena[block + UNTIL] >= t:
                position = arena[block + POSITION]
                pairs = top + EVENTS + 2 * (position + 2)
                for pair in range(block + EVENTS + 2 * (position + 1), block + arena[block + SIZE], 2):
                    waiting = arena[pair + 1]
                    if waiting == 0:
                        continue
                    record = arena[pair] * WORD_RECORD
                    passes, keeps, kind = words[record + PASSES], words[record + KEEPS], words[record + KIND]
                    found = waiting
                    if passes >= 0:
                        found &= bits[passes]
                    if kind == SILENCE:
                        found = 0
                    gone = 0 if kind == COMBINATION else found
                    if keeps >= 0:
                        found &= bits[keeps]
                    if found != 0:
                        found = within(arena, block, words, record, windows, limits, t, found)
                        if found != 0:
                            if words[record + FOLLOWING] >= 0:
                                arena[pairs] = words[record + FOLLOWING]
                                arena[pairs + 1] = found
                                pairs += 2
                            else:
                                write_match(out, used, arena[pair], found, arena, block, position, row, t)
                                used += width
                    if words[record + CANCELS] >= 0:
                        gone |= waiting & bits[words[record + CANCELS]]
                    if gone != 0:
                        arena[pair + 1] = waiting & ~gone
                        if not is_lone and words[record + TIES] == 0:
                            recent[recents] = block
                            recent[recents + 1] = arena[pair]
                            recent[recents + 2] = gone
                            recents += RECENT
                            registers[RECENT_AT] = t
                    alive |= arena[pair + 1]
                top = extended(arena, block, made, pairs, row, t, words)
            if alive == 0:
                arena[block + DEAD] = 1
                if before == NONE:
                    heads[key] = following
                else:
                    arena[before + NEXT] = following
            else:
                before = block
            block = following
        # --- rules that another event of the same time has decided ---
        for at in range(0, before_recents, RECENT):
            block = recent[at]
            record = recent[at + 1] * WORD_RECORD
            if arena[block + KEY] != key or arena[block + END] >= t or words[record + KIND] == SILENCE:
                continue
            found, position = recent[at + 2], arena[block + POSITION]
            if words[record + PASSES] >= 0:
                found &= bits[words[record + PASSES]]
            if words[record + KEEPS] >= 0:
                found &= bits[words[record + KEEPS]]
            if found != 0:
                found = within(arena, block, words, record, windows, limits, t, found)
            if found == 0:
                continue
            if words[record + FOLLOWING] >= 0:
                pairs = top + EVENTS + 2 * (position + 2)
                arena[pairs] = words[record + FOLLOWING]
                arena[pairs + 1] = found
                top = extended(arena, block, top, pairs + 2, row, t, words)
                continue
            write_match(out, used, recent[at + 1], found, arena, block, position, row, t)
            used += width
        # --- new instances ---
        if may_begin:
            to = top + EVENTS + 2
            for a in range(attributes):
                arena[to + a] = first_class[a] + classes[a * events + e]
            arena[top + SIZE] = EVENTS + 2 + attributes
            arena[top + POSITION] = 0
            arena[top + KEY] = key
            arena[top + END] = t
            arena[top + UNTIL] = t + parts[LATENT_REACH]
            arena[top + DEAD] = 0
            arena[top + LATER] = LATENT
            arena[top + EVENTS] = row
            arena[top + EVENTS + 1] = t
            top += EVENTS + 2 + attributes
        start_at = 0
        while key != NONE and start_at < starts.shape[0]:
            start_end = starts.shape[0] if start_at == parts[IN_TIME] else parts[IN_TIME]
            to = top + EVENTS + 2
            for at in range(start_at, start_end, 2):
                found = bits[starts[at]]
                if found != 0:
                    arena[to] = starts[at + 1]
                    arena[to + 1] = found
                    to += 2
            if to > top + EVENTS + 2:
                top = completed(arena, top, to, 0, key, row, t, words)
            start_at = start_end
        some = 0
        for at in range(silences.shape[0]):
            some |= bits[silences[at]]
        for queue in range(0, queues.shape[0] if some != 0 else 0, QUEUE):
            to = top + EVENTS + 2
            for w in range(queues[queue + QUEUE_WORDS]):
                found = bits[queues[queue + QUEUE_BITS] + w]
                if found != 0:
                    arena[to] = queues[queue + QUEUE_FIRST] + w
                    arena[to + 1] = found
                    to += 2
            if to > top + EVENTS + 2:
                block = top
                top = completed(arena, top, to, 0, key, row, t, words)
                enqueue(arena, block, queues, queue)
                wake = min(wake, t + queues[queue + QUEUE_DELAY])
        # --- the list of the key ---
        while began < top:
            registers[MADE] += 1
            if key != NONE:
                arena[began + NEXT] = heads[key]
                heads[key] = began
            began += arena[began + SIZE]
        e += 1
    registers[TOP], registers[OUT], registers[WAKE], registers[RECENTS] = top, used, wake, recents
    return e


@njit
def extended(arena: np.ndarray, block: int, made: int, pairs: int, row: int, t: int, words: np.ndarray) -> int:
    """Completes the instance that continues another with an event; its set is written up to `pairs`. Returns the new
    top, which is the old one if the set is empty."""
    position = arena[block + POSITION] + 1
    if pairs == made + EVENTS + 2 * (position + 1):
        return made
    for i in range(position):
        arena[made + EVENTS + i] = arena[block + EVENTS + i]
        arena[made + EVENTS + position + 1 + i] = arena[block + EVENTS + position + i]
    return completed(arena, made, pairs, position, arena[block + KEY], row, t, words)


@njit
def completed(
    arena: np.ndarray, made: int, end: int, position: int, key: int, row: int, t: int, words: np.ndarray
) -> int:
    """Fills in an instance whose set and earlier events are written. Returns its end."""
    arena[made + SIZE] = end - made
    arena[made + POSITION] = position
    arena[made + KEY] = key
    arena[made + NEXT] = NONE
    pairs = made + EVENTS + 2 * (position + 1)
    arena[made + END] = t - words[arena[pairs] * WORD_RECORD + TIES]
    arena[made + DEAD] = 0
    arena[made + LATER] = NONE
    arena[made + EVENTS + position] = row
    arena[made + EVENTS + 2 * position + 1] = t
    reach = 0
    for pair in range(pairs, end, 2):
        reach = max(reach, words[arena[pair] * WORD_RECORD + REACH])
    arena[made + UNTIL] = arena[made + EVENTS + position + 1] + reach
    return end
