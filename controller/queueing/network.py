"""An open network of topics with several job types, by parametric decomposition.

Nguyen and Nahrstedt, "Elastic pub/sub", Eqs (3) to (6); every visit of a job to a topic counts (G5), and a job may come
back to a topic, which makes the scvs a fixed point (G6). Rates per any unit of time; times in that unit.
"""

from collections.abc import Sequence
from math import fsum

import msgspec

from controller.queueing.gim import Gim, Stream, check_scv, departure_scv, gim, merge_scv, split_scv
from controller.queueing.mmsk import check_rates

TOLERANCE = 1e-12
"""Largest change of an scv, relative to the largest scv where that is above 1, at which the fixed point is reached."""


class NetworkTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue with its consumers: service rate of one of them, scv of its service time, value ν of an event there."""

    name: str
    service_rate: float
    service_scv: float = 1.0
    value: float = 1.0


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job type: the topics that it visits one after the other, its arrival rate and scv of interarrival times."""

    name: str
    route: tuple[str, ...]
    arrival_rate: float
    arrival_scv: float = 1.0


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """Topics and jobs. Raises ValueError for a name that occurs twice, an unknown topic or an impossible value."""

    topics: tuple[NetworkTopic, ...]
    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        for kind, names in (("topic", [t.name for t in self.topics]), ("job", [j.name for j in self.jobs])):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{kind}s {names}: expected at least one, each name once")
        for topic in self.topics:
            check_rates(0.0, topic.service_rate)
            check_scv(service_scv=topic.service_scv, value=topic.value)
        for job in self.jobs:
            check_rates(job.arrival_rate, 1.0)
            check_scv(arrival_scv=job.arrival_scv)
            unknown = [name for name in job.route if name not in {t.name for t in self.topics}]
            if unknown or not job.route:
                raise ValueError(f"route of job {job.name}: {unknown or 'no topic'}: expected names of topics")

    def routes(self) -> list[list[int]]:
        """Position of the topic of each step, per job."""
        position = {topic.name: index for index, topic in enumerate(self.topics)}
        return [[position[name] for name in job.route] for job in self.jobs]


class AllocatedNetwork(Network, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network and the number of consumers of each topic, as a file has them."""

    consumers: tuple[int, ...]


PUBLISHED = AllocatedNetwork(
    topics=(
        NetworkTopic(name="A", service_rate=4.2, service_scv=0.33),
        NetworkTopic(name="B", service_rate=3.7, service_scv=0.5),
        NetworkTopic(name="C", service_rate=6.7, service_scv=0.4),
        NetworkTopic(name="D", service_rate=5.1, service_scv=0.5),
    ),
    jobs=(
        Job(name="1", route=("A", "B", "D"), arrival_rate=3.0, arrival_scv=0.33),
        Job(name="2", route=("A", "D", "D"), arrival_rate=3.5, arrival_scv=0.5),
        Job(name="3", route=("C", "D"), arrival_rate=3.0, arrival_scv=0.25),
    ),
    consumers=(2, 2, 1, 4),
)
"""The paper's tasks and jobs (section VI), rates per minute, with the allocation that its MinTime finds."""


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """Per topic, in the network's order: arrival rate λ̃, scv of interarrival times, utilisation (above 1: overload).

    ``step_scv`` has per job the scv of its own stream at each step of its route.
    """

    arrival_rate: tuple[float, ...]
    arrival_scv: tuple[float, ...]
    utilisation: tuple[float, ...]
    step_scv: tuple[tuple[float, ...], ...]


class NetworkMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """``work_in_progress`` is Σ ν L; ``response_time`` the mean over all jobs (Little), ``job_response_time`` per job.

    What passes an overloaded topic takes infinitely long.
    """

    decomposition: Decomposition
    topics: tuple[Gim, ...]
    work_in_progress: float
    response_time: float
    job_response_time: tuple[float, ...]


def decompose(network: Network, consumers: Sequence[int]) -> Decomposition:
    """Arrival rates and scvs of all topics with ``consumers`` per topic: Eqs (3) to (6) until nothing changes.

    The map is linear and a contraction (an scv weighs at most p + (1 - p)² < 1 in the next step's), so it converges.
    Raises ValueError unless there is one number of at least 1 per topic.
    """
    topics, jobs, routes = network.topics, network.jobs, network.routes()
    if len(consumers) != len(topics) or min(consumers) < 1:
        raise ValueError(f"consumers={list(consumers)}: expected {len(topics)} numbers of at least 1")
    visits: list[list[tuple[int, int]]] = [[] for _ in topics]
    for i, route in enumerate(routes):
        for k, j in enumerate(route):
            visits[j].append((i, k))
    arrival_rate = [fsum(jobs[i].arrival_rate for i, _ in visits[j]) for j in range(len(topics))]  # (3)
    utilisation = [
        rate / (topic.service_rate * m) for rate, topic, m in zip(arrival_rate, topics, consumers, strict=True)
    ]

    def merged(scv: list[list[float]]) -> list[Stream]:
        return [merge_scv(Stream(jobs[i].arrival_rate, scv[i][k]) for i, k in at_topic) for at_topic in visits]  # (4)

    scv = [[job.arrival_scv] * len(job.route) for job in jobs]
    while True:
        departing = [
            departure_scv(stream.scv, topic.service_scv, rho, m)  # (5)
            for stream, topic, rho, m in zip(merged(scv), topics, utilisation, consumers, strict=True)
        ]
        following = [
            [
                jobs[i].arrival_scv,
                *(
                    split_scv(jobs[i].arrival_rate / (arrival_rate[j] or 1.0), departing[j], scv[i][k])  # (6)
                    for k, j in enumerate(route[:-1])
                ),
            ]
            for i, route in enumerate(routes)
        ]
        change = max(abs(new - old) for n, o in zip(following, scv, strict=True) for new, old in zip(n, o, strict=True))
        scv = following
        if change <= TOLERANCE * max(1.0, *(max(steps) for steps in scv)):
            break
    return Decomposition(
        arrival_rate=tuple(arrival_rate),
        arrival_scv=tuple(stream.scv for stream in merged(scv)),
        utilisation=tuple(utilisation),
        step_scv=tuple(tuple(steps) for steps in scv),
    )


def measure(network: Network, consumers: Sequence[int]) -> NetworkMeasures:
    """Work in progress and response times of the network with ``consumers`` per topic.

    Without any arrivals the mean response time is that of one event of each job, the limit of ever smaller equal rates.
    """
    parts = decompose(network, consumers)
    topics = tuple(
        gim(rate, scv, topic.service_rate, topic.service_scv, m)
        for rate, scv, topic, m in zip(parts.arrival_rate, parts.arrival_scv, network.topics, consumers, strict=True)
    )
    in_progress = fsum(topic.value * station.in_system for topic, station in zip(network.topics, topics, strict=True))
    per_job = tuple(fsum(topics[j].response_time for j in route) for route in network.routes())
    total_rate = fsum(job.arrival_rate for job in network.jobs)
    return NetworkMeasures(
        decomposition=parts,
        topics=topics,
        work_in_progress=in_progress,
        response_time=in_progress / total_rate if total_rate > 0 else fsum(per_job) / len(per_job),
        job_response_time=per_job,
    )
