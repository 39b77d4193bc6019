"""Kafka consumer groups: fleet, monitor, actuators over processes and pods, replica set, assignment of partitions."""

from penstock.fleet_kinds import FleetKind

KIND = FleetKind(
    name="stream",
    title="Kafka consumer groups",
    system="penstock.systems:StreamSystem",
    observation="penstock.contracts:StreamObservation",
    fleet="controller.fleets.stream.fleet:StreamFleet",
    engine="simulator.stream:make_engine",
    faults="simulator.stream:StreamEngine.faults",
    live="infra.runs.kinds:STREAM",
    explanations="report.explanations.stream:FAMILIES",
)
