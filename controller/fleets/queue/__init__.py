"""Banks of RabbitMQ queues: fleet, monitor, actuator, replica set, forwarder and routing."""

from penstock.fleet_kinds import FleetKind

KIND = FleetKind(
    name="queue",
    title="queue fleets",
    system="penstock.systems:QueueSystem",
    observation="penstock.contracts:QueueObservation",
    fleet="controller.fleets.queue.fleet:QueueFleet",
    engine="simulator.queue:make_engine",
    faults="simulator.queue:QueueEngine.faults",
    live="infra.runs.kinds:QUEUE",
    explanations="report.explanations.queue:FAMILIES",
)
