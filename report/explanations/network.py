"""Scalers of a pub/sub network (Nguyen, Nahrstedt): allocation by step, and its measures in the model."""

from itertools import pairwise

from report.explanations.wording import MANY, Family, Sentence, Table, Terms, as_list, number, sentences

TOPICS = Table(
    "topics",
    {
        "topics": "topic j",
        "mu_per_min": "μ_j (1/min)",
        "cs2": "c²_s,j",
        "lambda_j_per_min": "λ_j (1/min)",
        "ca2_j": "c²_a,j",
        "rho_j": "ρ_j",
        "L_j": "L_j",
        "m": "m_j",
    },
    "topics",
)


def _path(terms: Terms) -> list[str]:
    """The first allocation and the topic of each further consumer, with R if known and the values compared."""
    path, times = as_list(terms["path"]), as_list(terms.get("R_after_each_s"))
    names = as_list(terms.get("topics")) or [f"number {j + 1}" for j in range(len(path[0]))]
    rows = [[f"start: m = {_tuple(path[0])}{_response(times, 0)}"]]
    for step, (before, after) in enumerate(pairwise(path), 1):
        to = ", ".join(str(names[j]) for j, (was, m) in enumerate(zip(before, after, strict=True)) if m != was)
        said = f"step {step}: +1 for topic {to}, m = {_tuple(after)}{_response(times, step)}"
        rows.append([said, *_compared(terms, names, step)])
    hidden = len(rows) - MANY
    shown = rows if hidden <= 0 else [*rows[: MANY - 1], [f"… {hidden} steps more …"], rows[-1]]
    return [line for row in shown for line in row]


def _compared(terms: Terms, names: list[str], step: int) -> list[str]:
    """The candidates of a step: ρ of the topics that are overloaded, else the gain of one consumer more in each."""
    compared, candidates = as_list(terms.get("compared")), as_list(terms.get("candidates"))
    if step > len(candidates):
        return []
    values = list(zip(names, candidates[step - 1], strict=True))[:MANY]
    if compared[step - 1] == "rho":
        said = ", ".join(f"{name} {number(rho)}" for name, rho in values if rho)
        return [f"  the most overloaded, by ρ_j: {said}"]
    # Little: R = Σ L_j / Σλ.
    total_per_min = sum(as_list(terms.get("lambda_per_min")))
    gains = ", ".join(
        f"{name} {number(gain)}" + (f" (ΔR {number(60 * gain / total_per_min)} s)" if total_per_min else "")
        for name, gain in values
    )
    return [f"  the largest gain, L_j(m_j) − L_j(m_j + 1): {gains}"]


def _tuple(m: list[int]) -> str:
    return f"({', '.join(map(str, m[:MANY]))}{', …' if len(m) > MANY else ''})"


def _response(times: list[float | str], step: int) -> str:
    if step >= len(times):
        return ""
    now, before = times[step], times[step - 1] if step else None
    if isinstance(now, float) and isinstance(before, float):
        return f", R = {number(before)} − {number(before - now)} = {number(now)} s"
    return f", R = {number(now)} s"


PUBSUB = Family(
    frozenset({"min-cost", "min-time", "random"}),
    sentences(
        "R measured = {response_time_s} s > limit = {response_limit_s} s? {response_time_s > response_limit_s}",
        "reason to reschedule: {trigger:none}",
        "T = {T_s} s",
        "M = {M} consumers beyond one a topic",
        Sentence(frozenset({"path", "R_after_each_s", "compared", "candidates"}), _path),
        Sentence(frozenset({"path", "R_after_each_s"}), _path),
        Sentence(frozenset({"path"}), _path),
        "iterations = {iterations}",
        "λ of the jobs = {lambda_per_min}/min, their c²_a = {ca2}",
        "WIP = Σ L_j = {WIP}, R = WIP / Σλ = {R_s} s",
        "infeasible: {infeasible}",
        "consumers = {consumers}, m = {m}",
        "m = {m}",
    ),
    (TOPICS,),
    frozenset({"R_s"}),
)


def _trade(terms: Terms) -> list[str]:
    """One consumer fewer, the chosen number, and one more: late jobs, their price, the choice."""
    lines = []
    for index, consumers in enumerate(as_list(terms["candidates"])):
        idle_s, work_s, change_s, late, cost = (number(as_list(terms[name])[index]) for name in TRADE[1:])
        lines.append(
            f"{consumers} consumer{'s' if consumers > 1 else ''}: J = {idle_s} s idle + {work_s} s of work "
            f"+ {change_s} s for the change + {number(terms['price_s'])} · {late} late = {cost}"
            f"{' ← least' if index == terms['chosen'] else ''}"
        )
    return lines


TRADE = ("candidates", "idle_s", "work_s", "change_s", "late", "cost")

NEWSVENDOR = Family(
    frozenset({"newsvendor-network"}),
    sentences(
        "λ_in of the jobs {jobs} = {rates_per_s}/s, squared error of the forecasts over their means = {dispersions}",
        "contract: {slo_share:%} of the jobs within {slo_s} s; late though none waits: {late_without_waits:%}",
        "infeasible: {infeasible}",
        "tasks arrive at {rate_per_s}/s in the long run, {arrivals} until the next decision",
        "service time = {service_s} s",
        "in service: {in_service}, waiting: {waiting}; mean wait = {mean_wait_s} s",
        "the oldest one has waited for {oldest_s} s",
        "late jobs of those that do not wait here = {late_at_once:%}",
        "the least number of consumers can do all the work: {keeps_up:%} probable",
        "a task that a consumer beyond the least number serves costs {extra_s} s",
        Sentence(frozenset({*TRADE, "chosen", "price_s"}), _trade),
        "λ = {price_s} consumer-seconds per late job",
        "a consumer serves {start_up_s} s after its request",
        "consumers = {consumers}, wanted = {wanted}",
    ),
    marks=frozenset({"work_s", "late_without_waits"}),
)

FAMILIES = (PUBSUB, NEWSVENDOR)
