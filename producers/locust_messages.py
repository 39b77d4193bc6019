"""What a load session and Locust tell each other: lines of JSON over pipes, for neither Kafka's client nor Spark may
meet gevent.

A line is written at once and short enough (``PIPE_BUF``) that several processes may share the pipe.
"""

import os
import select
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from penstock.measures import Ints

BUCKETS_A_LINE: Final = 128
"""A bucket and its count take some twenty bytes at most, and 4096 are written in one piece (POSIX asks for 512)."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The fleet stands and the schedule is about to be played. ``start_ns``: offset 0 of the schedule, wall clock;
    ``per_second``: events in each of its seconds.
    """

    directory: str
    start_ns: int
    per_second: tuple[int, ...]


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """Terminal results of one whole second (since the epoch, by finishing time) and stage, as a log-bucket histogram.

    Latencies run from intended times, in seconds. ``missed``: completed, but after the SLO; ``failed``: not completed.
    """

    stage: str
    second: int
    buckets: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    missed: int = 0
    failed: int = 0


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The session is over. ``issued_share``: events handed to the client, of the whole schedule."""

    issued_share: float
    send_delay_p99_s: float | None


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """What went wrong, in one line: nothing can be sent, or a sender was lost."""

    message: str


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """Locust to the session: one of its senders has ended. ``figures`` are its own (``producers.delivery``), null if it
    had nothing to send; its deliveries are in ``deliveries``, a file in the run's directory. ``trouble``: why there is
    neither, though it was to send.
    """

    sender: int
    figures: msgspec.Raw = msgspec.Raw(b"null")
    deliveries: str = ""
    trouble: str = ""


Message: TypeAlias = Started | Batch | Ended | Trouble

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def tell(message: Message, descriptor: int = 1) -> None:
    """Write one line to a pipe, by default to standard output."""
    line = _encoder.encode(message) + b"\n"
    if len(line) > select.PIPE_BUF and not isinstance(message, Started | Trouble):
        raise ValueError(f"a line of {len(line)} bytes could be torn apart by another writer's")
    while line:
        line = line[os.write(descriptor, line) :]


def understand(line: bytes) -> Message | None:
    """The message of a line; None for anything else that a program may have written."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def in_lines(buckets: Ints, counts: Ints) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A histogram in pieces that fit a line each."""
    for start in range(0, len(buckets), BUCKETS_A_LINE):
        piece = slice(start, start + BUCKETS_A_LINE)
        yield tuple(buckets[piece].tolist()), tuple(counts[piece].tolist())
