"""Seeded event data after the papers' experiments, for examples, tests and benchmarks.

Every generator returns a table with `type` (string) and `ts` (integer, never decreasing), then the attributes. The
same arguments produce the same table. An attribute that a type does not have is null in all its events.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from cepheid.errors import InputProblem

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
"""In milliseconds, the unit of `ts` in generators with real time."""


def retail(n: int, tags: int = 50_000, seed: int = 0) -> pa.Table:
    """RFID readings in a shop (SASE, query 1): shoplifting is Shelf, no Register, Exit. `ts` counts readings."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=[0.45, 0.25, 0.30])
    return pa.table(
        {
            "type": _pick(["Shelf", "Register", "Exit"], kind),
            "ts": np.arange(n),
            "tag_id": rng.integers(1, tags, n, endpoint=True),
        }
    )


_CURRENCIES = {"US": "USD", "GB": "GBP", "DE": "EUR", "FR": "EUR", "CH": "CHF", "JP": "JPY"}
_AT_HOME = 0.95
_MEDIAN, _SPREAD = 120, 0.9
"""The countries of card transactions, the share of those in the country of the account, and their amounts."""


def cards(n: int, accounts: int = 20_000, seed: int = 0) -> pa.Table:
    """Credit card transactions of ten days (NEXT, §1.1). Most happen in the country of the account."""
    rng = np.random.default_rng(seed)
    places = _CURRENCIES
    account = rng.integers(accounts, size=n)
    home = rng.integers(len(places), size=accounts)
    place = np.where(rng.random(n) < _AT_HOME, home[account], rng.integers(len(places), size=n))
    return pa.table(
        {
            "type": _pick(["t"], np.zeros(n, np.int64)),
            "ts": np.sort(rng.integers(10 * DAY, size=n)),
            "acc": account + 1,
            "amount": np.round(_MEDIAN * rng.lognormal(0, _SPREAD, n), 2),
            "currency": _pick(list(places.values()), place),
            "country": _pick(list(places), place),
        }
    )


def fraud_rules(n: int, seed: int = 0) -> dict[str, str]:
    """EQL rules over `cards` (NEXT, §1.1): sequences of 2 to 4 transactions of an account with limits on amounts,
    countries, currencies and a window, some with an exception or a timer. The first rules of a larger number are the
    same. All rules together find at most 0.2 matches per event, for up to 10,000 rules."""
    rng = np.random.default_rng(seed)
    return {f"rule{number}": _fraud_rule(rng) for number in range(n)}


_WINDOWS = {
    "20 min": 1 / 3,
    "30 min": 0.5,
    "45 min": 0.75,
    "1 hours": 1.0,
    "90 min": 1.5,
    "2 hours": 2.0,
    "4 hours": 4.0,
}
"""The windows of rules, in hours."""
_SHARE = 2e-5
"""The largest share of events that one rule matches."""
_GAP = 5.0
"""The hours between two transactions of an account in a million events."""


def _fraud_rule(rng: np.random.Generator) -> str:
    kind = rng.choice(["sequence", "exception", "timer"], p=[0.7, 0.15, 0.15])
    share = _SHARE * 10 ** float(rng.uniform(-2, 0))
    window = str(rng.choice(list(_WINDOWS)))
    names = ["A", "B", "C", "D"][: int(rng.integers(2, 5)) if kind == "sequence" else 2]
    if kind == "timer":
        place, odds = _place_test(rng, "A")
        tests = [*place, _amount("A", ">", share / odds), _amount("B", ">", float(rng.uniform(0.2, 0.9)))]
        return f"SELECT * FROM ((t A @ {window}) \\ t B) WHERE A.acc = B.acc AND {' AND '.join(tests)}"
    tests, last = [], names[-1]
    share *= _GAP / _WINDOWS[window]
    for name in names[:-1]:
        odds = float(rng.uniform(0.1, 0.6))
        place, of_place = _place_test(rng, name)
        tests += [_amount(name, str(rng.choice(["<", ">"])), odds), *place]
        share /= odds * of_place
    place, of_place = _place_test(rng, last)
    ending = [_amount(last, ">", min(share / of_place, 0.3)), *place]
    filters = [f"FILTER({one}.acc = {other}.acc)" for one, other in itertools.pairwise(names)]
    within = f"(A, {last}) OCCURS WITHIN {window}"
    if kind == "exception":
        filters += [f"FILTER({test})" for test in ending]
        tests += ["A.acc = X.acc", _amount("X", "<", float(rng.uniform(0.05, 0.3))), within]
        return f"SELECT * FROM (t A; (t B \\ t X)) WHERE {', '.join(filters)}, {' AND '.join(tests)}"
    pattern = "; ".join(f"t {name}" for name in names)
    return f"SELECT * FROM ({pattern}) WHERE {', '.join(filters)}, {' AND '.join([*tests, *ending, within])}"


def _amount(name: str, op: str, share: float) -> str:
    """A limit that this share of the amounts satisfies."""
    share = min(max(share, 1e-7), 0.99)
    limit = _MEDIAN * math.exp(_SPREAD * NormalDist().inv_cdf(share if op == "<" else 1 - share))
    return f"{name}.amount {op} {limit:.0f}"


def _place_test(rng: np.random.Generator, name: str) -> tuple[list[str], float]:
    """A condition on country or currency, and the most events that satisfy it."""
    country = str(rng.choice(list(_CURRENCIES)))
    match int(rng.integers(4)):
        case 0:
            return [f"{name}.country = '{country}'"], 1 / 6
        case 1:
            return [f"{name}.currency = '{_CURRENCIES[country]}'"], 1 / 3
        case 2:
            return [f"{name}.country <> '{country}'"], 1.0
        case _:
            return [], 1.0


def stock(n: int, symbols: int = 2, p_up: float = 0.7, seed: int = 0, *, alternating: bool = True) -> pa.Table:
    """A stock ticker (SASE+, §6): the price rises by 1 with probability `p_up`, else falls or stays with equal chance.

    The paper draws symbols uniformly; alternating ones make `WITHIN n events` of one symbol exact. Prices wrap around
    in 1-1000, as a rising price would leave the paper's range. `ts` counts ticks."""
    rng = np.random.default_rng(seed)
    symbol = np.arange(n) % symbols if alternating else rng.integers(symbols, size=n)
    step = rng.choice([1, 0, -1], n, p=[p_up, (1 - p_up) / 2, (1 - p_up) / 2])
    by_symbol = np.argsort(symbol, kind="stable")
    price = np.empty(n, np.int64)
    # One walk through all symbols: each begins near where the one before ended, which is as good a start as any.
    price[by_symbol] = (rng.integers(1000) + np.cumsum(step[by_symbol])) % 1000 + 1
    return pa.table(
        {
            "type": _pick(["Stock"], np.zeros(n, np.int64)),
            "ts": np.arange(n),
            "symbol": symbol + 1,
            "price": price,
            "volume": rng.integers(1, 1000, n, endpoint=True),
        }
    )


def ticks(
    n: int,
    rates: Mapping[str, float] | None = None,
    seed: int = 0,
    *,
    prices: Mapping[str, tuple[float, float]] | None = None,
) -> pa.Table:
    """Stock trades (ZStream, §6): the type is the stock's name; `rates` are relative, 1:1:1:1 by default.

    Prices are uniform in 1-1000, or in the range of the stock in `prices`, which sets the selectivity of a
    comparison."""
    rates = rates or {"IBM": 1, "Sun": 1, "Oracle": 1, "Google": 1}
    rng = np.random.default_rng(seed)
    weights = np.array(list(rates.values()), np.float64)
    stock = rng.choice(len(rates), n, p=weights / weights.sum())
    name = _pick(list(rates), stock)
    low, high = np.array([(prices or {}).get(each, (1.0, 1000.0)) for each in rates]).T
    return pa.table(
        {
            "type": name,
            "ts": np.arange(n),
            "id": np.arange(n),
            "name": name,
            "price": np.round(rng.uniform(low[stock], high[stock]), 2),
            "volume": rng.integers(1, 1000, n, endpoint=True),
        }
    )


def synthetic(
    n: int, types: int = 20, domains: Sequence[int] = (100, 20, 10, 1_000, 10_000), seed: int = 0, *, theta: float = 0
) -> pa.Table:
    """Events E1, E2, ... with attributes attr1, attr2, ... of these domain sizes (SASE, table 1).

    Types follow a Zipf distribution with exponent `theta`; 0, as in the paper, is uniform. `ts` counts events."""
    rng = np.random.default_rng(seed)
    kind = _zipf(rng, types, theta, n)
    attributes = {f"attr{i}": rng.integers(1, size, n, endpoint=True) for i, size in enumerate(domains, 1)}
    return pa.table({"type": _pick([f"E{i + 1}" for i in range(types)], kind), "ts": np.arange(n), **attributes})


def weblog(n: int, seed: int = 0) -> pa.Table:
    """Accesses to a research group's web server in four weeks (ZStream, §6.5), a few hosts making most of them.

    Publication, Project and Course have the shares of table 4; all other accesses have the type Other."""
    rng = np.random.default_rng(seed)
    kinds, paths = ["Publication", "Project", "Course", "Other"], ["publications", "projects", "courses", "pages"]
    counts = [round(count * n / 1_500_000) for count in (6775, 11610, 16083)]
    kind = rng.permutation(np.repeat(np.arange(4), [*counts, n - sum(counts)]))
    hosts, pages = max(1, n // 100), 100
    host = _zipf(rng, hosts, 1.0, n)
    return pa.table(
        {
            "type": _pick(kinds, kind),
            "ts": np.sort(rng.integers(28 * DAY, size=n)),
            "ip": _pick([f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}" for i in range(hosts)], host),
            "url": _pick(
                [f"/{path}/{page}" for path in paths for page in range(pages)],
                kind * pages + rng.integers(pages, size=n),
            ),
        }
    )


def shipments(n: int, sites: int = 100, seed: int = 0) -> pa.Table:
    """Shipments between sites, and alerts about some of them (SASE+, query 2), one event a minute on average.

    The paper's attribute `type` of an Alert is `kind` here: `type` is the event's own."""
    rng = np.random.default_rng(seed)
    alert = rng.random(n) < 0.02
    origin = rng.integers(sites, size=n)
    target = (origin + rng.integers(1, sites, n)) % sites  # never the origin
    names = [f"S{i + 1}" for i in range(sites)]
    return pa.table(
        {
            "type": _pick(["Shipment", "Alert"], alert.astype(np.int64)),
            "ts": np.cumsum(rng.exponential(MINUTE, n)).astype(np.int64),
            "site": _pick(names, origin, where=alert),
            "kind": _pick(["contaminated", "damaged", "delayed"], rng.integers(3, size=n), where=alert),
            "from": _pick(names, origin, where=~alert),
            "to": _pick(names, target, where=~alert),
        }
    )


def persons(n: int, seed: int = 0) -> pa.Table:
    """People seen by cameras (plan-based CED, §2.1): 50 people in a square of side 100, ten detections a second.

    `ts` is in seconds. People walk, and now and then run, so that the paper's `running_person` has something to find.
    `node_id` is the camera, one of 4 x 4, whose part of the square they are in."""
    rng = np.random.default_rng(seed)
    people, side, cameras = 50, 100.0, 4
    ts, person = np.arange(n) // 10, rng.integers(people, size=n)
    by_person = np.argsort(person, kind="stable")
    elapsed = np.diff(ts[by_person], prepend=0)
    walked = elapsed * np.where(rng.random(n) < 0.05, 6.0, 1.4)
    direction = rng.uniform(0, 2 * np.pi, n)
    # The first step of each person begins at the last position of the previous one; a long step leads anywhere.
    first = np.diff(person[by_person], prepend=-1) != 0
    walked[first] = rng.uniform(0, 100 * side, int(first.sum()))
    place = np.empty((2, n))
    place[:, by_person] = np.cumsum(walked * np.array([np.cos(direction), np.sin(direction)]), axis=1)
    place = np.round(side - np.abs(place % (2 * side) - side), 2)  # reflected at the walls
    column, row = np.minimum(place // (side / cameras), cameras - 1).astype(np.int64)
    return pa.table(
        {
            "type": _pick(["person_detector"], np.zeros(n, np.int64)),
            "ts": ts,
            "id": person + 1,
            "loc_x": place[0],
            "loc_y": place[1],
            "node_id": row * cameras + column + 1,
        }
    )


def write(table: pa.Table, path: str | Path) -> None:
    """Save a table in the format that the extension names: .parquet, .csv (with a header) or .jsonl."""
    path = Path(path)
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, path)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".jsonl":
            with path.open("w", encoding="utf-8") as file:
                for batch in table.to_batches(max_chunksize=10_000):
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
        case other:
            raise InputProblem(
                f"cannot write `{path}`: the extension `{other}` names no format of Cepheid",
                expected=".parquet, .csv or .jsonl",
            )


def _pick(names: Sequence[str], index: npt.ArrayLike, where: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The name at each index, as strings; null where `where` is false."""
    chosen = pa.array(index, mask=None if where is None else ~where)
    return pa.array(names, pa.string()).take(chosen)


def _zipf(rng: np.random.Generator, values: int, theta: float, n: int) -> npt.NDArray[np.int64]:
    """Draws from 0..values-1 where the k-th is chosen with a probability proportional to 1 / k^theta."""
    weights = 1 / np.arange(1, values + 1) ** theta
    return rng.choice(values, n, p=weights / weights.sum())
