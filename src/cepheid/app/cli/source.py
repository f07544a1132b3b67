"""`cepheid source`: serves a log of events that can be asked, and asks sources for their rates."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import InputProblem, shown

if TYPE_CHECKING:
    from cepheid.events import Duration

source_app = typer.Typer(
    help="Sources that can be asked for events: serve one, or ask some for their rates.", no_args_is_help=True
)

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


@source_app.command("serve")
def serve_command(
    name: Annotated[str, typer.Option(help="The name of the source.")],
    input: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="PATH", help="Files with events, which are read once; may be repeated."),
    ] = None,
    follow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FEED",
            help="A feed of JSON Lines: a file or directory that grows, - for stdin, or tcp://HOST:PORT.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="The address; port 0 chooses one.")] = "127.0.0.1:0",
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file with the token; needed outside of the loopback.")
    ] = None,
    tls_certificate: Annotated[str | None, typer.Option(metavar="FILE", help="The certificate of TLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of TLS.")] = None,
    retention: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="How long events are kept; by default for ever.")
    ] = None,
    max_events: Annotated[int, typer.Option(help="How many events of a type are kept.")] = 10_000_000,
    lateness: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="The times of events are those of the clock, and an event comes at most this late. By default an "
            "event says that all earlier ones have come.",
        ),
    ] = None,
    beat: Annotated[str, typer.Option(metavar="LENGTH", help="How often a subscription reports no events.")] = "200 ms",
    delay: Annotated[str, typer.Option(metavar="LENGTH", help="Delays each message, for experiments.")] = "0 s",
    loss: Annotated[float, typer.Option(help="The share of answers that are lost, for experiments.")] = 0.0,
    type: cli.Type = None,
    type_column: cli.TypeColumn = "type",
    time_column: cli.TimeColumn = "ts",
    start_column: cli.StartColumn = None,
    time_unit: cli.TimeUnit = None,
) -> None:
    """Serve a log of events over Arrow Flight, in this process, until it is interrupted.

    The address is printed on standard output. Rows that are no events are reported on standard error.

    \b
    Example:
      cepheid source serve --name shop --input events.parquet"""
    if not input and not follow:
        raise InputProblem("there are no events", expected="--input PATH or --follow FEED")
    from cepheid.detection.flight_server import FlightLog, ServerOptions
    from cepheid.detection.log_source import attributes_of, events_of
    from cepheid.events import Clock
    from cepheid.io.feeds import feed
    from cepheid.io.files import open_files
    from cepheid.io.growing_log import GrowingLog
    from cepheid.io.inputs import Columns, Input
    from cepheid.io.rows import is_moment
    from cepheid.io.source_list import duration

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise InputProblem(f"`{shown(listen)}` is no address", expected="HOST:PORT, such as 127.0.0.1:8815")
    options = ServerOptions(
        host.strip("[]"),
        int(port),
        None if token_file is None else _read(token_file).decode().strip(),
        None if tls_certificate is None else _read(tls_certificate),
        None if tls_key is None else _read(tls_key),
        _seconds(duration(beat, "--beat")),
        _seconds(duration(delay, "--delay")),
        loss,
    )
    columns = Columns(type_column, time_column, start_column)
    late = None if lateness is None else int(_seconds(duration(lateness, "--lateness")) * 1_000_000)
    # A server that is restarted reads files again, and what standard input or a socket sent before is gone.
    is_gone = any(text == "-" or text.startswith("tcp://") for text in follow or ())
    log = GrowingLog(name, columns, None, max_events, late, starts_late=is_gone)
    for path in input or ():
        source = open_files([Input(path, type)], columns)
        events = events_of(path, source)
        log.append(events, attributes_of(source, events.column(source.columns.type).unique().to_pylist()))
        if retention is not None and log.schema is not None:
            is_time = is_moment(log.schema.field(time_column).type)
            clock = Clock("us", is_timestamp=True) if is_time else Clock(time_unit or source.epoch_unit)
            log.retention = int(clock.ticks(duration(retention, "--retention")))
    if retention is not None and not input:
        unit = Clock("us", is_timestamp=True) if time_unit is None else Clock(time_unit)
        log.retention = int(unit.ticks(duration(retention, "--retention")))
    signals = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before threads start: this one takes them
    server, stop = FlightLog(log, options), threading.Event()
    if follow:
        arguments = (log, follow, type, stop, lambda line, reason: report.warn([f"left out: {reason}: {line[:200]}"]))
        threading.Thread(target=feed, args=arguments, daemon=True).start()
    else:
        log.end()
    typer.echo(server.address)
    signal.sigwait(signals)
    stop.set()
    sent = log.sent
    report.note(f"{sent.events:,} events and {sent.bytes:,} bytes sent in {sent.answers:,} answers; {log.late:,} late")
    sys.stdout.flush()
    os._exit(0)  # subscriptions are open, and a shutdown would wait for them


@source_app.command("stats")
def stats_command(
    sources: Annotated[str, typer.Option(metavar="FILE", help="The file that names the sources, as JSON.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the statistics go; - for stdout.")
    ] = cli.STANDARD,
) -> None:
    """Ask sources for the rates and models of their event types. `detect` reads the answer from the file that
    "statistics" names in the file of the sources; without it, `detect` asks itself.

    \b
    Example:
      cepheid source stats --sources sources.json"""
    from cepheid.detection.links import listed_links
    from cepheid.detection.planning import statistics_text
    from cepheid.io.source_list import read_source_list

    with report.progress("reading"):
        text = statistics_text([link.source.describe() for link in listed_links(read_source_list(sources))])
    if output == cli.STANDARD:
        typer.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise InputProblem(f"`{shown(path, 200)}` cannot be read: {problem}") from None


def _seconds(length: Duration) -> float:
    if length.unit not in _SECONDS or isinstance(length.amount, str):
        raise InputProblem(f"`{length}` is no length of time", expected="a number and a unit, such as 200 ms")
    return length.amount * _SECONDS[length.unit]
