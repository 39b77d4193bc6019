"""Messages between a load session and Locust: lines of JSON over pipes, since neither Kafka's client nor Spark can run
in a process with gevent.

A line is written in one piece (at most ``PIPE_BUF`` bytes), so that several processes can share the pipe.
"""

import os
import select
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from penstock.measures import Ints

BUCKETS_PER_LINE: Final = 128
"""A bucket and its count take about twenty bytes at most; a pipe writes 4096 in one piece (POSIX requires 512)."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The fleet is ready and the schedule is about to start."""

    directory: str
    start_ns: int
    """Wall clock of offset 0 of the schedule."""
    per_second: tuple[int, ...]
    """Events in each second of the schedule."""


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """Terminal results of one stage and one second, as a log-bucket histogram. Latencies are from intended times."""

    stage: str
    second: int
    """Seconds since the epoch, by finishing time."""
    buckets: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    missed: int = 0
    """Events completed after the SLO."""
    failed: int = 0
    """Events not completed."""


class Fleet(msgspec.Struct, frozen=True, tag="fleet"):
    """What the controller saw of the fleet at its newest tick."""

    time_s: float
    """Seconds from offset 0 of the schedule."""
    replicas: int
    lag: int | None
    """Events that wait or are in service; None: unknown."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The session is over."""

    issued_share: float
    """Events handed to the client, as a share of the whole schedule."""
    send_delay_p99_s: float | None
    left: int = 0
    """Events in flight that were not waited for any longer."""


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """An error, in one line: nothing can be sent, a sender was lost, or results are not read any longer."""

    message: str


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """From Locust to the session: one of its senders has ended."""

    sender: int
    deliveries: str = ""
    """File with its deliveries in the run's directory."""
    trouble: str = ""
    """Why there are no deliveries."""


Message: TypeAlias = Started | Batch | Fleet | Ended | Trouble

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def write_message(message: Message, descriptor: int = 1) -> None:
    """Write one line to a pipe, by default to standard output."""
    line = _encoder.encode(message) + b"\n"
    if len(line) > select.PIPE_BUF and not isinstance(message, Started | Trouble):
        raise ValueError(f"a line of {len(line)} bytes can be interleaved with another writer's")
    while line:
        line = line[os.write(descriptor, line) :]


def read_message(line: bytes) -> Message | None:
    """The message in a line; None for any other output of a program."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def in_lines(buckets: Ints, counts: Ints) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Split a histogram into pieces that fit into a line each."""
    for start in range(0, len(buckets), BUCKETS_PER_LINE):
        piece = slice(start, start + BUCKETS_PER_LINE)
        yield tuple(buckets[piece].tolist()), tuple(counts[piece].tolist())
