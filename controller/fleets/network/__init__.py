"""Pub/sub networks of topics on RabbitMQ: fleet, monitor, actuator, replica set."""

from penstock.fleet_kinds import FleetKind

KIND = FleetKind(
    name="network",
    title="network fleets",
    system="penstock.systems:NetworkSystem",
    observation="penstock.contracts:NetworkObservation",
    fleet="controller.fleets.network.fleet:NetworkFleet",
    engine="simulator.network:make_engine",
    faults="simulator.network:NetworkEngine.faults",
    live="infra.runs.kinds:NETWORK",
    explanations="report.explanations.network:FAMILIES",
)
