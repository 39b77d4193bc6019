"""The way of a job through a pub/sub network, as the app of one topic needs it."""

from typing import NamedTuple

from penstock.systems import NetworkSystem


class Stop(NamedTuple):
    """A step of a route: its topic, how often the job has been there by then, and where it goes next ("" for out)."""

    topic: str
    visit: int
    following: str


class Routes:
    """Stops of every job of a network, by job type and step."""

    def __init__(self, system: NetworkSystem) -> None:
        self._stops = {
            job.job: tuple(
                Stop(topic, job.route[: step + 1].count(topic), following)
                for step, (topic, following) in enumerate(zip(job.route, (*job.route[1:], ""), strict=True))
            )
            for job in system.jobs
        }

    def stop(self, job: str, step: int) -> Stop | None:
        """None for a job type or a step that there is not."""
        stops = self._stops.get(job, ())
        return stops[step] if 0 <= step < len(stops) else None
