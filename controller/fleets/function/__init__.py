"""Pipelines of functions behind an OpenFaaS gateway: fleet, monitor, actuator, replica set."""

from penstock.fleet_kinds import FleetKind

KIND = FleetKind(
    name="function",
    title="function fleets",
    system="penstock.systems:FunctionSystem",
    observation="penstock.contracts:FunctionObservation",
    fleet="controller.fleets.function.fleet:FunctionFleet",
    engine="simulator.function:make_engine",
    faults="simulator.function:FunctionEngine.faults",
    live="infra.runs.kinds:FUNCTION",
    explanations="report.explanations.function:FAMILIES",
)
