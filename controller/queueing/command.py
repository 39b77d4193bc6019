"""``penstock formula``: the queueing formulas as JSON. Rates in any one unit of time, times in that unit."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from controller.queueing.rounding import finite
from penstock.errors import PenstockError

ArrivalRate = Annotated[float, typer.Option(help="λ, events per unit of time.")]
ServiceRate = Annotated[float, typer.Option(help="μ of one server, events per unit of time.")]
Servers = Annotated[int, typer.Option(help="Number of servers.")]
OfferedLoad = Annotated[float, typer.Option(help="a = λ/μ.")]

MAX_SERVERS = 10_000_000
"""More would keep the recursion busy for minutes."""

formulas = typer.Typer(
    no_args_is_help=True,
    help="Compute queueing formulas; answers are JSON.",
    short_help="Compute queueing formulas; answers are JSON.",
    epilog="Example: penstock formula mmsk --arrival-rate 200 --service-rate 10 --servers 20 --capacity 50",
)


def answering(example: str) -> Callable[[Callable[..., dict[str, Any]]], object]:
    """Add a command that prints a function's answer as JSON. A value that describes no queue becomes a PenstockError.

    ``example``: the arguments of the one in its help.
    """

    def add(formula: Callable[..., dict[str, Any]]) -> object:
        name = formula.__name__.replace("_", "-")

        @formulas.command(name, epilog=f"Example: penstock formula {name} {example}")
        @wraps(formula)
        def command(**options: Any) -> None:
            if options.get("servers", 0) > MAX_SERVERS and "capacity" not in options:
                raise PenstockError(f"--servers {options['servers']}: expected at most {MAX_SERVERS}")
            try:
                answer = formula(**options)
            except ValueError as error:
                raise PenstockError(str(error)) from None
            typer.echo(msgspec.json.format(msgspec.json.encode(finite(answer)), indent=2).decode())

        return command

    return add


@answering("--arrival-rate 200 --service-rate 10 --servers 20 --capacity 50")
def mmsk(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    capacity: Annotated[int, typer.Option(help="K, events in the whole system.")],
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Print P_0 … P_K as well.")] = False,
) -> dict[str, Any]:
    """M/M/s/K: loss, queue, waiting time. λ, μ, s and K as the multi-queue paper has them."""
    from controller.queueing import mmsk as formula

    answer: dict[str, Any] = msgspec.to_builtins(formula.mmsk(arrival_rate, service_rate, servers, capacity))
    if probabilities:
        answer["P_n"] = formula.probabilities(arrival_rate, service_rate, servers, capacity).tolist()
    return answer


@answering("--arrival-rate 95 --service-rate 10 --servers 12 --within 0.1")
def mmc(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    within: Annotated[float | None, typer.Option(help="Print P(W ≤ t) of this time until service begins.")] = None,
    percentile: Annotated[float, typer.Option(help="Of the waiting time, as a share.")] = 0.95,
) -> dict[str, Any]:
    """M/M/c: waiting probability, queue, waiting time and its distribution."""
    from controller.queueing import erlang

    answer: dict[str, Any] = msgspec.to_builtins(erlang.mmc(arrival_rate, service_rate, servers))
    waits = erlang.waiting_time_percentile(arrival_rate, service_rate, servers, percentile)
    answer[f"W_q_p{100 * percentile:g}"] = waits
    if within is not None:
        answer["within"] = within
        answer["P_within"] = erlang.p_waits_at_most(arrival_rate, service_rate, servers, within)
    return answer


@answering("--offered-load 20 --servers 25")
def erlang_b(offered_load: OfferedLoad, servers: Servers) -> dict[str, Any]:
    """Erlang B: share of events that are lost when none may wait."""
    from controller.queueing import erlang

    return {"B": erlang.erlang_b(offered_load, servers)}


@answering("--offered-load 20 --servers 25")
def erlang_c(offered_load: OfferedLoad, servers: Servers) -> dict[str, Any]:
    """Erlang C: share of events that have to wait when all may."""
    from controller.queueing import erlang

    return {"C": erlang.erlang_c(offered_load, servers)}


@answering("--arrival-rate 6.5 --arrival-scv 0.42 --service-rate 4.2 --service-scv 0.33 --servers 2")
def gim(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    arrival_scv: Annotated[float, typer.Option(help="c_a² of the time between arrivals.")] = 1.0,
    service_scv: Annotated[float, typer.Option(help="c_s² of the service time.")] = 1.0,
) -> dict[str, Any]:
    """GI/G/m as the pub/sub paper has it; L_as_printed is Eq (2) with its erratum, for comparison."""
    from controller.queueing import gim as formula

    given = arrival_rate, arrival_scv, service_rate, service_scv, servers
    return {**msgspec.to_builtins(formula.gim(*given)), "L_as_printed": formula.l_gim_as_printed(*given)}


@answering("--consumers 2,2,1,4")
def network(
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON with topics, jobs and consumers.", show_default="the pub/sub paper's, per minute"),
    ] = None,
    consumers: Annotated[
        str | None, typer.Option(help="Consumers per topic, in order.", show_default="those of the file")
    ] = None,
    print_input: Annotated[bool, typer.Option("--print-input", help="Print the input instead, as JSON.")] = False,
) -> dict[str, Any]:
    """An open network of topics: rates, variability, work in progress and response times, in all and per job."""
    from controller.queueing.network import PUBLISHED, AllocatedNetwork, measure

    try:
        given = PUBLISHED if file is None else msgspec.json.decode(file.read_bytes(), type=AllocatedNetwork)
    except OSError as error:
        raise PenstockError(f"{file}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise PenstockError(f"{file}: {error}; see penstock formula network --print-input") from None
    if print_input:
        answer: dict[str, Any] = msgspec.to_builtins(given)
        return answer
    allocated = list(given.consumers)
    if consumers is not None:
        expected = f"--consumers {consumers}: expected whole numbers with commas, such as 2,2,1,4"
        allocated = numbers(consumers, int, expected)
    found = measure(given, allocated)
    parts = found.decomposition
    topics = {
        topic.name: {
            "consumers": allocated[j],
            "arrival_rate": parts.arrival_rate[j],
            "arrival_scv": parts.arrival_scv[j],
            **msgspec.to_builtins(found.topics[j]),
        }
        for j, topic in enumerate(given.topics)
    }
    jobs = {
        job.name: {"step_scv": parts.step_scv[i], "response_time": found.job_response_time[i]}
        for i, job in enumerate(given.jobs)
    }
    return {"WIP": found.work_in_progress, "response_time": found.response_time, "topics": topics, "jobs": jobs}


@answering("10 12 15 --alpha 0.5 --gamma 0.4")
def holt(
    series: Annotated[list[float], typer.Argument(help="Rates, one an epoch, the oldest first.")],
    alpha: Annotated[float, typer.Option(help="α of the level.")] = 0.5,
    gamma: Annotated[float, typer.Option(help="γ of the trend.")] = 0.3,
    init: Annotated[Literal["zero", "diff"], typer.Option(help="Trend at the first value.")] = "zero",
    horizon: Annotated[int, typer.Option(help="Epochs ahead.", min=1)] = 1,
    grid: Annotated[
        str | None, typer.Option(help="Choose α and γ among these, by squared error, e.g. 0.1,0.5,0.9.")
    ] = None,
) -> dict[str, Any]:
    """Holt's forecast of a rate as AMESoS makes it; clamped at 0, the raw value beside it."""
    from controller.queueing.holt import grid_search, mean_squared_error, smooth

    if grid is not None:
        candidates = numbers(grid, float, f"--grid {grid}: expected numbers with commas, such as 0.1,0.5,0.9")
        best = grid_search(series, candidates, candidates, init)
        alpha, gamma = best.alpha, best.gamma
    found = smooth(series, alpha, gamma, init)
    return {
        "alpha": alpha,
        "gamma": gamma,
        "S": found.level,
        "trend": found.trend,
        "horizon": horizon,
        "forecast": found.rate_ahead(horizon),
        "forecast_unclamped": found.ahead(horizon),
        "mean_squared_error": mean_squared_error(series, alpha, gamma, init),
    }


def numbers(text: str, kind: type[int | float], expected: str) -> list[Any]:
    """Parse numbers separated by commas. PenstockError names the ``expected`` form."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise PenstockError(expected) from None
