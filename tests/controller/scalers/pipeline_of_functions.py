"""A pipeline of functions that answers every scaling request at once, for tests of its scalers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.contracts import Decision, FunctionObservation, FunctionStatus, ReplicaCounts


class Pipeline:
    """Counters that grow epoch by epoch; replicas that follow the decisions."""

    def __init__(
        self,
        scaler: Any,
        process_time_s: Mapping[str, float],
        *,
        name: str = "document",
        epoch_s: float = 2.5,
        replicas: Mapping[str, int] | None = None,
        phase_s: float = 0.1,
    ) -> None:
        self.scaler, self.state = scaler, scaler.start(1)
        self.name, self.process_time_s, self.epoch_s = name, dict(process_time_s), epoch_s
        self.replicas = dict(replicas or dict.fromkeys(process_time_s, 1))
        self.time_s = phase_s
        self.arrived = self.finished = self.missed = 0
        self.completed = dict.fromkeys(process_time_s, 0)
        self.busy_s = dict.fromkeys(process_time_s, 0.0)

    def observation(self, laxity_s: Mapping[str, Sequence[float]]) -> FunctionObservation:
        return FunctionObservation(
            time_s=self.time_s,
            fleet=f"{self.name}-pipeline",
            replicas=ReplicaCounts(joined=sum(self.replicas.values())),
            pipeline=self.name,
            deadline_s=0.5,
            arrived=self.arrived,
            finished=self.finished,
            missed=self.missed,
            functions=tuple(
                FunctionStatus(
                    time_s=self.time_s,
                    fleet=function,
                    replicas=ReplicaCounts(requested=1, joined=self.replicas[function] - 1),
                    arrived=self.arrived,
                    completed=self.completed[function],
                    busy_s=self.busy_s[function],
                    laxity_s=tuple(laxity_s.get(function, ())),
                )
                for function in self.process_time_s
            ),
        )

    def epoch(
        self,
        arrivals: int,
        laxity_s: Mapping[str, Sequence[float]] | None = None,
        *,
        completed: int | None = None,
        missed: int = 0,
        change: Mapping[str, Any] | None = None,
        restart: bool = False,
    ) -> Decision:
        """One epoch with so many arrivals; all are completed unless ``completed`` says how many. ``change`` replaces
        fields of the observation, ``restart`` writes the state down and reads it back first.
        """
        self.time_s += self.epoch_s
        done = arrivals if completed is None else completed
        self.arrived, self.finished, self.missed = self.arrived + arrivals, self.finished + done, self.missed + missed
        for function, process_time_s in self.process_time_s.items():
            self.completed[function] += done
            self.busy_s[function] += done * process_time_s
        seen = msgspec.structs.replace(self.observation(laxity_s or {}), **(change or {}))
        if restart:
            self.state = msgspec.json.decode(msgspec.json.encode(self.state), type=self.scaler.State)
        decision: Decision
        decision, following = self.scaler.decide(seen, self.state)
        assert self.scaler.decide(seen, self.state) == (decision, following)
        assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision).targets == decision.targets
        self.state = following
        self.replicas |= decision.targets
        return decision
