"""Scalers of Kafka consumer groups: bin packing (Ezzeddine, Baude, Huet) and its comparisons."""

from report.explanations.wording import MANY, Family, Sentence, Table, Terms, as_list, number, sentences

PARTITIONS = Table(
    "partitions",
    {
        "partitions": "partition",
        "lag": "lag (events)",
        "rate_per_s": "λ (events/s)",
        "total_lag": "total lag = lag + λ·t_r",
    },
    "partitions",
)


def _violating(terms: Terms) -> list[str]:
    consumers, limit = as_list(terms["violating"]), as_list(terms.get("bin_up"))
    question = "assignment violates the SLO at f_up"
    if not consumers:
        return [f"{question}? no"]
    said = [f"consumer {index}: lag {number(lag)}, rate {number(rate)}/s" for index, lag, rate in consumers[:MANY]]
    above = f" (limits {number(limit[0])} and {number(limit[1])}/s)" if limit else ""
    return [f"{question}? yes, {'; '.join(said)}{above}"]


ASSIGNED = "assigned now ({current_from}): {current:groups}"

PACKED = sentences(
    ASSIGNED,
    "bin at f_up: lag ≤ μ·w·f = {bin_up.0}, rate ≤ μ·f = {bin_up.1}/s",
    "bin at f_down: lag ≤ μ·w·f = {bin_down.0}, rate ≤ μ·f = {bin_down.1}/s",
    "t_r = {rebalance_time_s} s",
    "peak λ = {peak_rate_per_s}/s; a partition: lag {peak_per_partition.0}, rate {peak_per_partition.1}/s",
    "|G| = {replicas}",
    "|Least-Loaded(peak)| = {LL_peak}",
    *(
        f"|Least-Loaded({load}, {at})| = {{{term}}} {sign} {{replicas}}? {{{term} {sign} replicas}}{packed}"
        for term, load, at, sign in (
            ("LL_up", "lag", "f_up", ">"),
            ("LL_down", "lag", "f_down", "<"),
            ("LL_total_up", "total lag", "f_up", ">"),
            ("LL_total_down", "total lag", "f_down", "<"),
        )
        for packed in (f": {{{term}_groups:groups}}", "")
    ),
    Sentence(frozenset({"violating"}), _violating),
    "flag: {flag:none}",
)

PACKING = Family(
    frozenset({"binpack", "binpack-tail", "least-loaded", "overprovision"}),
    PACKED,
    marks=frozenset({"bin_up", "LL_up"}),
)

BINSCALE = Family(
    frozenset({"binscale"}),
    PACKED,
    (PARTITIONS._replace(headings=PARTITIONS.headings | {"total_lag": "total lag = lag + Σλ·t_r/P"}),),
)

BY_RATE = Family(
    frozenset({"linear", "optimal", "mwf-rscore"}),
    sentences(
        ASSIGNED,
        "Σλ = {total_rate_per_s}/s",
        *(
            text
            for at in ("up", "down")
            for text in (
                f"a replica at f_{at}: μ·w·f = {{mu_per_s}}/s · {{w_s}} s · {{f_{at}}} = {{capacity_{at}}} events",
                f"a replica at f_{at}: μ·f = {{mu_per_s}}/s · {{f_{at}}} = {{capacity_{at}}}/s",
                f"⌈Σλ · {{lag_s}} s / capacity at f_{at}⌉ = {{needed_{at}}}",
                f"⌈Σλ / capacity at f_{at}⌉ = {{needed_{at}}}",
            )
        ),
        "wanted = {wanted}, at most {most}",
        "one replica carries {replica_capacity_per_s}/s",
        "capacity of a consumer C = {capacity_per_s}/s",
        "reason to pack anew: {trigger:none}",
        "Rscore = Σλ of the partitions that move / C = {r_score}",
        "|MWF(λ, C)| = {MWF}: {MWF_groups:groups}",
    ),
    marks=frozenset({"MWF", "needed_up"}),
)


def _trade(terms: Terms) -> list[str]:
    """The candidates of one replica fewer, the chosen number, and one more: late events, their price, the choice."""
    candidates, chosen, price = as_list(terms["candidates"]), terms["chosen"], terms["price_s"]
    columns = [as_list(terms[name]) for name in TRADE[2:]]
    saved = as_list(terms["saved"]) if "saved" in terms else []
    following = as_list(terms["next_replicas"]) if "next_replicas" in terms else []
    lines = []
    for index, (replicas, changed) in enumerate(zip(candidates, as_list(terms["regrouped"]), strict=True)):
        if not isinstance(chosen, int) or abs(replicas - candidates[chosen]) > 1:
            continue
        by_load, by_jump, waiting, by_pause, cost = (number(column[index]) for column in columns)
        name = f"{replicas} replica{'s' if replicas > 1 else ''}{', regrouped' if changed else ''}"
        running = f"{replicas} + {number(price)} · ({by_load} late + {by_jump} by jumps)"
        if following:
            running += f" + {number(following[index])} replicas that answer the next burst"
        else:
            running = f"{number(terms['horizon_s'])} · ({running})"
        lines.append(
            f"{name}: J = {running} "
            f"+ {number(price)} · ({waiting} waiting too long + {by_pause} by the rebalance)"
            f"{f' − {number(saved[index])} (credit of fewer replicas)' if saved and saved[index] else ''} = {cost}"
            f"{' ← least' if index == chosen else ''}"
        )
    return lines


def _beliefs(terms: Terms) -> list[str]:
    """What the scaler believes of a replica and of a rebalance, and how many measurements that is the median of."""
    values = (("μ", "service_rate_per_s", "/s"), ("start-up", "start_up_s", " s"), ("t_r", "rebalance_time_s", " s"))
    said = []
    for (name, term, unit), measured in zip(values, as_list(terms["measured"]), strict=True):
        source = f"median of {measured}" if measured else "told"
        said.append(f"{name} = {number(terms[term])}{unit} ({source})")
    return [f"believed: {', '.join(said)}"]


TRADE = ("candidates", "regrouped", "late_by_load", "late_by_jump", "late_waiting", "late_by_pause", "cost")

NEWSVENDOR = Family(
    frozenset({"newsvendor"}),
    sentences(
        Sentence(
            frozenset({"service_rate_per_s", "start_up_s", "rebalance_time_s", "measured"}),
            _beliefs,
        ),
        "an idle replica begins to serve an event {delivery_s} s after its intended time; so much of the SLO is gone",
        "m = {forecast} events per interval, next or when a replica requested now serves",
        "variance of m = {variance}, of the forecast over a start-up = {ahead_variance}",
        "β = {burstiness}: 0 for smooth arrivals, 1 for bursts",
        "jumps = {jumps} per interval, to {reach} events; the largest load was {peak}",
        "nothing says yet how the load changes: a jump to {first_jump} events is expected",
        "{announced_peak_per_s} events/s are announced, which may come at any time",
        "a jump makes {jump_ratio} times as many events late as expected",
        "the oldest waiting event is {oldest_s} s old",
        "a decision sees a burst {since_burst_s} s after it came and can still answer it: late events are those that "
        "the cheapest answer leaves",
        "λ = {price_s} replica-seconds per late event, for {slo_share:%} within the SLO",
        "λ is at least {least_price_s}: loads jump, and the contract leaves few late events for that",
        "scale-ins make {scale_in_ratio} times as many events late as their rebalance is expected to",
        *(
            Sentence(frozenset({*TRADE, "chosen", "price_s", "horizon_s", *more}), _trade)
            for more in (("saved", "next_replicas"), ("next_replicas",), ("saved",), ())
        ),
        "partitions for {grouped} replicas: those that have joined, or will have by the next decision; "
        "the others start",
        "{cannot}",
    ),
    (PARTITIONS,),
    marks=frozenset({"late_by_load"}),
)

FAMILIES = (PACKING, BINSCALE, BY_RATE, NEWSVENDOR)
