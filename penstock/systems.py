"""The fleet of a run, by kind: stream, queue, function or network. Times are in seconds, rates per second."""

from typing import Annotated, Final, Literal

import msgspec

from penstock import measured

ServiceDistribution = Literal["deterministic", "exponential", "gamma", "pareto"]
"""gamma and pareto take a squared coefficient of variation beside their mean."""


NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class System(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all; the tag of a subclass is the name of its kind of fleet (``penstock.fleet_kinds``)."""

    @property
    def lacks(self) -> frozenset[str]:
        """Parts that systems of its kind may have and this one has not: no fault can hit them."""
        return frozenset()


class StreamSystem(System, frozen=True, kw_only=True, tag="stream"):
    """A consumer group on a partitioned topic: ``RunSpec.partitions``, ``RunSpec.worker``. The fields apply to
    the sim world only; the times are what live runs measure (``penstock.measured``).
    """

    start_up_s: NotNegative = measured.START_UP_S
    """Seconds from a replica's request to its joining."""
    rebalance_s: NotNegative = measured.REBALANCE_S
    """Seconds of a rebalance of which all members are notified at once, from the stop of the last member until all
    resume; besides ``worker.rebalance_pause_s``.
    """
    stop_s: NotNegative = measured.STOP_S
    """Seconds from the release of a replica's last partition to its end."""
    leaving_rebalances: bool = True
    """A member without partitions still causes a rebalance when it leaves, as in Kafka."""
    cooperative: bool = False
    """A rebalance pauses the partitions that move, instead of all."""
    batch: Annotated[int, msgspec.Meta(ge=0)] = 500
    """Events of one partition that a replica takes before the next one's turn (Kafka's ``max.poll.records``); 0: events
    of all its partitions in order of arrival.
    """
    service_scv: NotNegative = measured.SERVICE_SCV
    """Squared coefficient of variation of a service time whose law is deterministic: the live world's jitter."""
    staleness_s: NotNegative = measured.READ_DELAY_S
    """Age in seconds of the committed offsets that the monitor reads."""
    staleness_sd_s: NotNegative = 0.0
    """Standard deviation in seconds of an additional age, drawn for each reading of each partition from one side of a
    normal distribution (seeded): a lag is sometimes read too long, never too short.
    """


class QueueSystem(System, frozen=True, kw_only=True, tag="queue"):
    """A main queue and bounded sub-queues, each with a function whose containers the provider adds."""

    service_rate_per_s: float
    """Events per second of one container (μ)."""
    service_law: ServiceDistribution = "exponential"
    """Distribution of the service time."""
    service_scv: float = 1.0
    """Squared coefficient of variation of the service time, for gamma and pareto."""
    scaled: Literal["queues", "containers"] = "queues"
    """A replica is a whole queue, or a container of the only queue (as HPA and KEDA scale it): then it joins
    ``first_container_s`` after its request, the provider adds none, and there is no pool.
    """
    forwarding: Literal["push", "pull"] = "push"
    """push: events are routed to sub-queues. pull: functions compete for the main queue's events; ``capacity`` and
    routing have no effect.
    """
    capacity: int | None = 50
    """K: events in a sub-queue, those in service included (Q1). None: unbounded."""
    main_capacity: int | None = None
    """Events that wait in the main queue. None: unbounded."""
    when_full: Literal["hold", "drop"] = "hold"
    """hold: the main queue keeps what no sub-queue takes. drop: the event is lost at the full sub-queue."""
    max_containers: int = 10
    """Largest number of containers of a function."""
    first_container_s: float = 0.0
    """Seconds from a function's start to its first container."""
    ramp_s: float = 1.0
    """Seconds between two steps of the container ramp."""
    ramp_step: int = 1
    """Containers added by a step."""
    provision_s: float = 0.0
    """Seconds to create a queue with its function (PPT)."""
    pool_initial: int = 2
    """Queues in the pool at the start."""
    when_removed: Literal["pool", "destroy"] = "pool"
    """Where a removed queue goes once it is empty."""
    forward_interval_s: float = 1.0
    """Seconds between two runs of the loop that fills the pool."""

    @property
    def lacks(self) -> frozenset[str]:
        """A forwarder, where functions pull."""
        return frozenset({"forwarder"} if self.forwarding == "pull" else ())


class FunctionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One function of a pipeline."""

    name: str
    """Name at the gateway."""
    service_time_s: float
    """Mean service time in seconds; in live worlds a service floor."""
    service_law: ServiceDistribution = "deterministic"
    """Distribution of the service time."""
    service_scv: float = 1.0
    """Squared coefficient of variation of the service time, for gamma and pareto."""
    after: tuple[str, ...] = ()
    """Functions whose results it waits for."""


class FunctionSystem(System, frozen=True, kw_only=True, tag="function"):
    """A pipeline of functions with branches and merges. A replica serves one request at a time."""

    functions: tuple[FunctionSpec, ...]
    """The pipeline's functions."""
    deadline_s: float
    """Deadline of a request, in seconds from its intended time."""
    cold_start_s: float = 1.0
    """Seconds from a replica's request until it is ready."""
    when_busy: Literal["queue", "reject"] = "queue"
    """queue: the gateway queues. reject: it answers 429, and the pipeline manager keeps the request."""
    max_replicas_total: int | None = None
    """Largest number of replicas of all functions together. None: no limit."""
    call_s: NotNegative = 0.0
    """Seconds that a call occupies a replica beyond the service time. Sim world only; `penstock calibrate functions`
    measures it.
    """
    image: str = "penstock/{function}:{version}"
    """Image of each function, where the gateway pulls images; {version} is Penstock's. Live worlds only."""
    secrets: str = ""
    """Comma-separated names of secrets at the gateway that each function gets. Live worlds only."""
    cpu_limit: str = ""
    """CPU limit of a replica, as Kubernetes writes it (500m). Live worlds only."""
    memory_limit: str = ""
    """Memory limit of a replica (128Mi). Live worlds only."""


DEPLOYMENT: Final = frozenset({"image", "secrets", "cpu_limit", "memory_limit"})
"""Fields of ``FunctionSystem`` that are for its deployment alone."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one topic."""

    topic: str
    """Name of the topic."""
    service_rate_per_s: float
    """Events per second of one consumer (μ)."""
    service_scv: float = 1.0
    """Squared coefficient of variation of the service time."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job type of a network."""

    job: str
    """Name of the job type."""
    route: tuple[str, ...]
    """Topics in order; a topic may be repeated."""
    arrival_rate_per_s: float
    """Jobs per second."""
    arrival_scv: float = 1.0
    """Squared coefficient of variation of the interarrival time."""
    phases: tuple[tuple[float, float], ...] = ()
    """Changes of the rate: (from second, jobs per second), in order."""


class NetworkSystem(System, frozen=True, kw_only=True, tag="network"):
    """An open pub/sub network; its times have gamma distributions of the given two moments. In the schedule of such a
    run, the column ``partition`` is the index of the job type.
    """

    topics: tuple[TopicSpec, ...]
    """All topics."""
    jobs: tuple[JobSpec, ...]
    """All job types."""
    start_up_s: float = 0.0
    """Seconds from a consumer's request to its joining."""
    window_s: float = 600.0
    """Seconds over which the monitor averages rates."""

    @property
    def longest_job_s(self) -> float:
        """Mean seconds of service that a job of the longest type needs."""
        service_s = {topic.topic: 1 / topic.service_rate_per_s for topic in self.topics}
        return max(sum(service_s[topic] for topic in job.route) for job in self.jobs)
