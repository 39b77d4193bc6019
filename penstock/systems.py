"""What a run's fleet consists of, by kind: the part of a run's description that differs from kind to kind.

A Kafka consumer group is described by the run's partitions and its ``WorkerSpec``. The other kinds have a description
of their own here; times are in seconds, rates per second (a paper's rates per minute are converted where they are
read).
"""

from typing import Annotated, Literal

import msgspec

ServiceLaw = Literal["deterministic", "exponential", "gamma", "pareto"]
"""gamma and pareto take a squared coefficient of variation beside their mean."""


NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class StreamSystem(msgspec.Struct, frozen=True, kw_only=True, tag="stream"):
    """A consumer group on a partitioned topic: see ``RunSpec.partitions`` and ``RunSpec.worker``. All of this is for
    simulated worlds only: a live group and its monitor are as they are.

    ``start_up_s``: from requested to joined. ``cooperative``: pause the partitions that move instead of all of them.
    ``batch``: events that polls hand out of one partition before the next one's turn (Kafka's ``max.poll.records``); 0:
    a replica takes the events of all its partitions in order of arrival. ``staleness_s``: age of the committed offsets
    that the monitor reads. ``staleness_sd_s``: standard deviation of what comes to that in each reading of each
    partition, drawn from one side of a normal distribution (seeded): a lag is at times read too long, never too short.
    """

    start_up_s: NotNegative = 0.0
    cooperative: bool = False
    batch: Annotated[int, msgspec.Meta(ge=0)] = 500
    staleness_s: NotNegative = 0.0
    staleness_sd_s: NotNegative = 0.0


class QueueSystem(msgspec.Struct, frozen=True, kw_only=True, tag="queue"):
    """A main queue and a bank of bounded sub-queues, each with a function whose containers the provider adds.

    ``capacity`` is K of a sub-queue, events in the system (reading Q1); ``main_capacity`` bounds what waits in the main
    queue. ``when_full``: the main queue holds what no sub-queue takes, or an event is lost where the routing sent it.
    ``forwarding`` pull: functions compete for the main queue's events and nothing waits behind it (``capacity`` and
    routing mean nothing then). A function starts with one container ``first_container_s`` after it was taken into
    service and gets ``ramp_step`` more every ``ramp_s``, up to ``max_containers``. ``provision_s``: to create a queue
    with its function (PPT). The pool starts with ``pool_initial`` of them; ``when_removed`` says where a queue goes
    that is no longer wanted, once it is empty. ``forward_interval_s``: between two runs of the loop that fills the
    pool.

    ``scaled`` says what the run's replicas are: whole queues, or the containers of the only queue (a broker queue with
    consumers, as HPA and KEDA scale it); then each joins ``first_container_s`` after it was asked for, no provider adds
    any, and there is no pool.
    """

    service_rate_per_s: float
    service_law: ServiceLaw = "exponential"
    service_scv: float = 1.0
    scaled: Literal["queues", "containers"] = "queues"
    forwarding: Literal["push", "pull"] = "push"
    capacity: int | None = 50
    main_capacity: int | None = None
    when_full: Literal["hold", "drop"] = "hold"
    max_containers: int = 10
    first_container_s: float = 0.0
    ramp_s: float = 1.0
    ramp_step: int = 1
    provision_s: float = 0.0
    pool_initial: int = 2
    when_removed: Literal["pool", "destroy"] = "pool"
    forward_interval_s: float = 1.0


class FunctionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One function: its service time (a floor, live), and the functions whose results it waits for."""

    name: str
    service_time_s: float
    service_law: ServiceLaw = "deterministic"
    service_scv: float = 1.0
    after: tuple[str, ...] = ()


class FunctionSystem(msgspec.Struct, frozen=True, kw_only=True, tag="function"):
    """A pipeline of functions with branches and merges. One request a replica at a time. ``when_busy``: the gateway
    queues, or answers 429 and the pipeline manager keeps the request. ``max_replicas_total`` caps all functions
    together. ``call_s``: how long a call keeps a replica beyond the service time, on its way there and back; for
    simulated worlds only, live it is what it is (``penstock calibrate functions`` measures it).
    """

    functions: tuple[FunctionSpec, ...]
    deadline_s: float
    cold_start_s: float = 1.0
    when_busy: Literal["queue", "reject"] = "queue"
    max_replicas_total: int | None = None
    call_s: NotNegative = 0.0


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One topic's task: service rate per consumer and squared coefficient of variation of the service time."""

    topic: str
    service_rate_per_s: float
    service_scv: float = 1.0


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job type: its route (repeats included), arrival rate and scv of its interarrival times. ``phases`` changes
    the rate: (from second, rate per s) in order.
    """

    job: str
    route: tuple[str, ...]
    arrival_rate_per_s: float
    arrival_scv: float = 1.0
    phases: tuple[tuple[float, float], ...] = ()


class NetworkSystem(msgspec.Struct, frozen=True, kw_only=True, tag="network"):
    """An open pub/sub network with gamma-distributed times of the given two moments. In the schedule of such a run the
    column ``partition`` is the index of the job type.
    """

    topics: tuple[TopicSpec, ...]
    jobs: tuple[JobSpec, ...]
    start_up_s: float = 0.0
    window_s: float = 600.0


System = StreamSystem | QueueSystem | FunctionSystem | NetworkSystem
