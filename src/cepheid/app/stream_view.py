"""Shows the metrics and the state of a stream in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cepheid.events import Clock, timestamp_text

if TYPE_CHECKING:
    from cepheid.streaming.inspection import BucketState, StreamState
    from cepheid.streaming.metrics import Metrics


class View:
    """A live table of the metrics of a stream; nothing without a terminal."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.clock = clock
        self.live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> View:
        if self.live is not None:
            self.live.start()
            self.live.update("waiting for the first batch", refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    @property
    def on_progress(self) -> Callable[[Metrics], None] | None:
        """Shows metrics; None without a terminal."""
        return None if self.live is None else self._show

    def _show(self, metrics: Metrics) -> None:
        if self.live is not None:
            self.live.update(metrics_table(metrics, self.clock), refresh=True)


def metrics_table(metrics: Metrics, clock: Clock) -> Table:
    table = Table(show_header=False, box=None)
    mark = metrics.watermark
    shown_mark = "none yet" if mark is None else timestamp_text(mark) if clock.is_timestamp else str(mark)
    rows = {
        "batches": f"{metrics.batches:,}",
        "events": f"{metrics.events:,} ({metrics.events_a_second:,.0f} a second)",
        **{f"matches of {name}": f"{number:,}" for name, number in metrics.matches.items()},
        "rows read": f"{metrics.read:,}",
        "late": f"{metrics.late:,}",
        "rejected": f"{metrics.rejects:,}",
        "state": f"{size(metrics.state_bytes)} in {metrics.state_buckets} buckets",
        "watermark": shown_mark,
        "latency": f"{metrics.latency_ms:,} ms",
    }
    if metrics.switches:
        name, last = metrics.switches[-1]
        rows["plan changes"] = f"{len(metrics.switches):,}, last in {name}: {last.reason}"
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def size(count: int) -> str:
    amount, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"


def state_lines(state: StreamState, most_keys: int) -> Iterator[str]:
    for name, text in state.queries.items():
        yield f"{name}: {' '.join(text.split())}"
    buckets = state.buckets
    events = sum(bucket.waiting + bucket.retained for bucket in buckets)
    total = sum(bucket.bytes for bucket in buckets)
    yield f"{len(buckets)} buckets, {events} events, {size(total)}; oldest event {state.time(_oldest(buckets))}"
    yield f"{'bucket':>8}{'bytes':>12}{'waiting':>10}{'retained':>10}{'keys':>8}  oldest"
    for bucket in buckets:
        yield (
            f"{bucket.bucket:>8}{bucket.bytes:>12}{bucket.waiting:>10}{bucket.retained:>10}{len(bucket.keys):>8}"
            f"  {state.time(bucket.oldest)}"
        )
    keys = sorted((key for bucket in buckets for key in bucket.keys), key=lambda key: (-key.events, str(key.key)))
    if keys and most_keys:
        yield f"{'events':>8}  {'oldest':<28}key"
        for key in keys[:most_keys]:
            yield f"{key.events:>8}  {state.time(key.oldest):<28}{', '.join(map(str, key.key))}"
        if len(keys) > most_keys:
            yield f"and {len(keys) - most_keys} more keys"


def _oldest(buckets: tuple[BucketState, ...]) -> int | None:
    return min((bucket.oldest for bucket in buckets if bucket.oldest is not None), default=None)
