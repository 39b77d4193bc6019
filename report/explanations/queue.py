"""Scalers of a queue fleet: Elastic Multi-M/M/s/K (Kathirvel, Parasuraman), damped and not, and the single queue."""

from report.explanations.wording import Family, Sentence, Table, Terms, as_list, fill, number, sentences

TABLE = Table(
    "queues",
    {"queues": "queue", "lambda": "λ (events/s)", "S": "S (containers)", "P_K": "P_K", "P_K_from": "P_K is from"},
    "queues",
)

LOSSES = "avg(P_K) = {avg_P_K} > maxP_K = {max_P_K}? {avg_P_K > max_P_K}; < minP_K = {min_P_K}? {avg_P_K < min_P_K}"

CYCLES = {
    "scale_out": "scale out: the first queue of the pool joins",
    "scale_out_empty_pool": "scale out, but the pool is empty",
    "reduce": "scale in: the rate of one queue is halved",
    "scale_in": "scale in: the queue whose rate has come down to minLambda leaves",
    "hold_last": "scale in, but one queue stays",
    "cancel": "between the limits: no queue is removable, the ratios are generated anew",
    "none": "nothing to do",
}


def _cycle(terms: Terms) -> list[str]:
    moved = terms.get("moved")
    return [f"this cycle: {CYCLES.get(str(terms['cycle']), terms['cycle'])}{f' ({moved})' if moved else ''}"]


def _removable(terms: Terms) -> list[str]:
    if terms["removable"] is None:
        return ["removable: none"]
    rate = "" if terms["removable_lambda"] is None else ", its λ after halving = {removable_lambda}/s"
    return [fill("removable: {removable}" + rate, terms)]


QUEUES = Family(
    frozenset({"multiqueue", "multiqueue-damped", "single-queue"}),
    sentences(
        "λ of the main queue = {lambda_main}/s",
        f"{LOSSES}; settled avg(P_K) = {{settled_P_K}} < minP_K? {{settled_P_K < min_P_K}}",
        LOSSES,
        "avg(S) = {avg_S} = maxS = {max_S}? {avg_S = max_S}",
        "pool before this cycle: {pool}",
        Sentence(frozenset({"cycle", "moved"}), _cycle),
        Sentence(frozenset({"removable", "removable_lambda"}), _removable),
        "ratios of λ: {ratios}",
        "spare queues to create: {spare_queues_to_create}",
        "nothing taken from the pool: {kept_back}",
        "queues = {queues}, wanted = {wanted}",
    ),
    (TABLE,),
    frozenset({"avg_P_K"}),
)

BANK = Table("queues", {"queues": "queue", "events": "events in it", "S": "S (containers)"}, "queues")


def _trade(terms: Terms) -> list[str]:
    """One queue fewer than the best number, that number, and one more: queue-seconds, late events, their price."""
    lines = []
    for index, queues in enumerate(as_list(terms["candidates"])):
        queue_s, late, cost = (number(as_list(terms[name])[index]) for name in TRADE[1:])
        lines.append(
            f"{queues} queue{'s' if queues > 1 else ''}: J = {queue_s} queue-seconds + {number(terms['price_s'])} · "
            f"{late} rejected or late = {cost}{' ← least' if index == terms['chosen'] else ''}"
        )
    return lines


TRADE = ("candidates", "queue_s", "late", "cost")

NEWSVENDOR = Family(
    frozenset({"newsvendor-queue"}),
    sentences(
        "λ_in = {rate_per_s}/s, changing by {trend}/s each second",
        "squared error of the forecast over its mean = {dispersion}",
        "μ of a container = {service_rate_per_s}/s, K = {K}",
        "queues on their way = {asked}",
        "events held in the main queue = {held}",
        "λ = {price_s} queue-seconds per event that is not served within {slo_s} s, for {slo_share:%} that are",
        "the next {horizon_s} s:",
        Sentence(frozenset({*TRADE, "chosen", "price_s"}), _trade),
        "fewer queues have been the better choice in {fewer_for} decisions before this one",
        "shares of the arrivals: {shares}",
        "queues = {replicas}, wanted = {wanted}",
    ),
    (BANK,),
    frozenset({"queue_s"}),
)

FAMILIES = (QUEUES, NEWSVENDOR)
