"""``penstock formula``: the queueing formulas as JSON. Rates in any one unit of time, times in that unit."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.queueing.network import AllocatedNetwork

ArrivalRate = Annotated[float, typer.Option(help="λ, events per unit of time.")]
ServiceRate = Annotated[float, typer.Option(help="μ of one server, events per unit of time.")]
Servers = Annotated[int, typer.Option(help="Number of servers.")]
OfferedLoad = Annotated[float, typer.Option(help="a = λ/μ.")]

MAX_SERVERS = 10_000_000
"""More would keep the recursion busy for minutes."""


def register_formulas(app: typer.Typer) -> None:
    """Add the sub-command ``formula``."""
    formulas = typer.Typer(
        no_args_is_help=True,
        help="Queueing formulas; answers as JSON. Rates in any one unit of time, times in that unit.",
        epilog="Example: penstock formula mmsk --arrival-rate 200 --service-rate 10 --servers 20 --capacity 50",
    )
    formulas.command(
        epilog="Example: penstock formula mmsk --arrival-rate 200 --service-rate 10 --servers 20 --capacity 50"
    )(mmsk)
    formulas.command(
        epilog="Example: penstock formula mmc --arrival-rate 95 --service-rate 10 --servers 12 --within 0.1"
    )(mmc)
    formulas.command("erlang-b", epilog="Example: penstock formula erlang-b --offered-load 20 --servers 25")(erlang_b)
    formulas.command("erlang-c", epilog="Example: penstock formula erlang-c --offered-load 20 --servers 25")(erlang_c)
    formulas.command(
        epilog="Example: penstock formula gim --arrival-rate 6.5 --arrival-scv 0.42 --service-rate 4.2 "
        "--service-scv 0.33 --servers 2"
    )(gim)
    formulas.command(epilog="Example: penstock formula network --consumers 2,2,1,4")(network)
    formulas.command(epilog="Example: penstock formula holt 10 12 15 --alpha 0.5 --gamma 0.4")(holt)
    app.add_typer(formulas, name="formula")


def mmsk(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    capacity: Annotated[int, typer.Option(help="K, events in the whole system.")],
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Print P_0 … P_K as well.")] = False,
) -> None:
    """M/M/s/K: loss, queue, waiting time. λ, μ, s and K as the multi-queue paper has them."""
    from controller.queueing import mmsk as formula

    found = told(lambda: formula.mmsk(arrival_rate, service_rate, servers, capacity))
    answer = msgspec.to_builtins(found)
    if probabilities:
        answer["P_n"] = formula.probabilities(arrival_rate, service_rate, servers, capacity).tolist()
    show(answer)


def mmc(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    within: Annotated[float | None, typer.Option(help="Print P(W ≤ t) of this time until service begins.")] = None,
    percentile: Annotated[float, typer.Option(help="Of the waiting time, as a share.")] = 0.95,
) -> None:
    """M/M/c: waiting probability, queue, waiting time and its distribution."""
    from controller.queueing import erlang

    at_most(servers)
    answer = msgspec.to_builtins(told(lambda: erlang.mmc(arrival_rate, service_rate, servers)))
    waits = told(lambda: erlang.waiting_time_percentile(arrival_rate, service_rate, servers, percentile))
    answer[f"W_q_p{100 * percentile:g}"] = waits
    if within is not None:
        answer["within"] = within
        answer["P_within"] = erlang.p_waits_at_most(arrival_rate, service_rate, servers, within)
    show(answer)


def erlang_b(offered_load: OfferedLoad, servers: Servers) -> None:
    """Erlang B: share of events that are lost when none may wait."""
    from controller.queueing import erlang

    at_most(servers)
    show({"B": told(lambda: erlang.erlang_b(offered_load, servers))})


def erlang_c(offered_load: OfferedLoad, servers: Servers) -> None:
    """Erlang C: share of events that have to wait when all may."""
    from controller.queueing import erlang

    at_most(servers)
    show({"C": told(lambda: erlang.erlang_c(offered_load, servers))})


def gim(
    arrival_rate: ArrivalRate,
    service_rate: ServiceRate,
    servers: Servers,
    arrival_scv: Annotated[float, typer.Option(help="c_a² of the time between arrivals.")] = 1.0,
    service_scv: Annotated[float, typer.Option(help="c_s² of the service time.")] = 1.0,
) -> None:
    """GI/G/m as the pub/sub paper has it; L_as_printed is Eq (2) with its erratum, for comparison."""
    from controller.queueing import gim as formula

    at_most(servers)
    given = arrival_rate, arrival_scv, service_rate, service_scv, servers
    answer = msgspec.to_builtins(told(lambda: formula.gim(*given)))
    show({**answer, "L_as_printed": formula.l_gim_as_printed(*given)})


def network(
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON with topics, jobs and consumers.", show_default="the pub/sub paper's, per minute"),
    ] = None,
    consumers: Annotated[
        str | None, typer.Option(help="Consumers per topic, in order.", show_default="those of the file")
    ] = None,
    print_input: Annotated[bool, typer.Option("--print-input", help="Print the input instead, as JSON.")] = False,
) -> None:
    """An open network of topics: rates, variability, work in progress and response times, in all and per job."""
    from controller.queueing.network import PUBLISHED, measure

    given = PUBLISHED if file is None else read(file)
    if print_input:
        show(msgspec.to_builtins(given))
        return
    numbers = list(given.consumers) if consumers is None else whole_numbers(consumers)
    found = told(lambda: measure(given, numbers))
    parts = found.decomposition
    topics = {
        topic.name: {
            "consumers": numbers[j],
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
    show({"WIP": found.work_in_progress, "response_time": found.response_time, "topics": topics, "jobs": jobs})


def holt(
    series: Annotated[list[float], typer.Argument(help="Rates, one an epoch, the oldest first.")],
    alpha: Annotated[float, typer.Option(help="α of the level.")] = 0.5,
    gamma: Annotated[float, typer.Option(help="γ of the trend.")] = 0.3,
    init: Annotated[Literal["zero", "diff"], typer.Option(help="Trend at the first value.")] = "zero",
    horizon: Annotated[int, typer.Option(help="Epochs ahead.", min=1)] = 1,
    grid: Annotated[
        str | None, typer.Option(help="Choose α and γ among these, by squared error, e.g. 0.1,0.5,0.9.")
    ] = None,
) -> None:
    """Holt's forecast of a rate as AMESoS makes it; clamped at 0, the raw value beside it."""
    from controller.queueing.holt import grid_search, mean_squared_error, smooth

    if grid is not None:
        candidates = numbers_in(grid)
        best = told(lambda: grid_search(series, candidates, candidates, init))
        alpha, gamma = best.alpha, best.gamma
    found = told(lambda: smooth(series, alpha, gamma, init))
    show(
        {
            "alpha": alpha,
            "gamma": gamma,
            "S": found.level,
            "trend": found.trend,
            "horizon": horizon,
            "forecast": found.rate_ahead(horizon),
            "forecast_unclamped": found.ahead(horizon),
            "mean_squared_error": mean_squared_error(series, alpha, gamma, init),
        }
    )


def show(answer: dict[str, Any]) -> None:
    """Print as JSON, an infinite value as the text "inf"."""
    typer.echo(msgspec.json.format(msgspec.json.encode(finite(answer)), indent=2).decode())


def finite(value: Any) -> Any:
    """The value as plain data that JSON can hold."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return "inf" if value == inf else value


def told(formula: "Callable[[], Any]") -> Any:
    """Its answer; a value that describes no queue becomes a PenstockError."""
    try:
        return formula()
    except ValueError as error:
        raise PenstockError(str(error)) from None


def at_most(servers: int) -> None:
    """Raise PenstockError for more servers than the recursions are good for."""
    if servers > MAX_SERVERS:
        raise PenstockError(f"--servers {servers}: expected at most {MAX_SERVERS}")


def read(file: Path) -> "AllocatedNetwork":
    """The network in a JSON file. PenstockError with the file's name and what is wrong in it."""
    from controller.queueing.network import AllocatedNetwork

    try:
        return msgspec.json.decode(file.read_bytes(), type=AllocatedNetwork)
    except OSError as error:
        raise PenstockError(f"{file}: {error.strerror or error}") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise PenstockError(f"{file}: {error}; see penstock formula network --print-input") from None


def whole_numbers(text: str) -> list[int]:
    """``"2,2,1,4"`` as numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise PenstockError(f"--consumers {text}: expected whole numbers with commas, such as 2,2,1,4") from None


def numbers_in(text: str) -> list[float]:
    """``"0.1,0.5"`` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise PenstockError(f"--grid {text}: expected numbers with commas, such as 0.1,0.5,0.9") from None
