"""Scalers of functions: AMESoS (Tsenos, Peri, Kalogeraki), its comparisons; Elastic-FaaS (Kathirvel, Parasuraman)."""

from report.explanations.wording import Family, Sentence, Terms, as_list, fill, number, sentences

FORECAST = sentences(
    "λ = {lambda_per_s}/s",
    "S_t = {S_per_s}/s, tr_t = {tr_per_s}/s, S_t + tr_t = {S_plus_tr_per_s}/s",
    "λ_pred = max(0, S_t + tr_t) = {lambda_pred_per_s}/s",
    "μ = λ_pred / ρ = {mu_per_s}/s, avgProcessTime = {avgProcessTime_s} s",
    "μ = λ_pred / ρ = {mu_per_s}/s; no request has finished yet",
)

LAXITY = "laxity_90 = {laxity_90_s:seconds} of {messages} messages"
UP = "up: laxity_90 < threshold = {threshold_s} s? {laxity_90_s < threshold_s}; c' = {c_new} > c = {c}? {c_new > c}"
DOWN = "down: laxity_90 > threshold = {threshold_s} s? {laxity_90_s > threshold_s}; c' = {c_new} < c = {c}? {c_new < c}"

AMESOS = Family(
    frozenset({"amesos"}),
    (
        *FORECAST,
        *sentences(
            "threshold = {threshold_s} s",
            "c = {c}, c' = ⌈μ · avgProcessTime⌉ = {c_new}",
            Sentence(
                frozenset({"laxity_90_s", "messages", "threshold_s", "c", "c_new"}),
                lambda terms: [fill(text, terms) for text in (LAXITY, UP, DOWN)],
            ),
        ),
    ),
    marks=frozenset({"laxity_90_s"}),
)

DWP = Family(
    frozenset({"dwp"}),
    (
        *sentences(
            "μ = λ_pred / ρ = λ_pred / {rho} = {mu_per_s}/s, avgProcessTime = {avgProcessTime_s} s",
            "μ = λ_pred / ρ = λ_pred / {rho} = {mu_per_s}/s; no request has finished yet",
        ),
        *FORECAST,
        *sentences(
            "deadlines missed in this epoch: {missed_share:%}; up: > {up_share:%}? {missed_share > up_share}; "
            "down: ≤ {down_share:%}? {missed_share ≤ down_share}",
            "c = {c}, c' = ⌈μ · avgProcessTime⌉ = {c_new}: c' > c? {c_new > c}; c' < c? {c_new < c}",
        ),
    ),
)

LASS = Family(
    frozenset({"lass", "lass-as-coded"}),
    sentences(
        "λ over the long window of {long_window_s} s = {rate_long_per_s}/s, "
        "over the short one of {short_window_s} s = {rate_short_per_s}/s",
        "λ = {lambda_per_s}/s (that of the short window where it is at least {burst_factor} times the other)",
        "μ = {mu_per_s}/s",
        "c = {c}: ρ = λ / (c·μ) = {utilisation}, C(c, λ/μ) = {C}",
        "c = {c}: ρ = λ / (c·μ) = {utilisation}",
        "c = {c}: nothing comes, nothing waits",
        "t = {t_used_s} s where {wait_s} s are meant: finds ⌊t·c·μ + c − 1⌋ = {n_before} requests before it at most",
        "P(W ≤ t) = 1 − C·e^(−(c·μ − λ)·t) = {P_W_at_most_t} with t = {t_s} s: "
        "≥ {wanted_probability}? {P_W_at_most_t ≥ wanted_probability}",
        "P(W ≤ t) as Σ P_n up to that = {P_W_at_most_t}: ≥ {wanted_probability}? {P_W_at_most_t ≥ wanted_probability}",
        "one container less, c = {one_less}: {P_one_less} ≥ {wanted_probability}? {P_one_less ≥ wanted_probability}",
        "replicas = {current_replicas}",
    ),
)

RPS = Family(
    frozenset({"rps"}),
    sentences(
        "currentLoad = {currentLoad_per_s}/s",
        "targetLoadPerReplica = ρ · μ = {rho} · {mu_per_s}/s = {targetLoadPerReplica_per_s}/s",
        "targetLoadPerReplica = {targetLoadPerReplica_per_s}/s",
        "replicas = {current_replicas}, desired = ⌈currentLoad / targetLoadPerReplica⌉ = {desired}",
        "μ = {mu_per_s}/s, ρ = {rho}",
    ),
)

ELASTIC_FAAS = Family(
    frozenset({"elastic-faas", "elastic-faas-published", "faas", "provider-ramp"}),
    sentences(
        "Q = {Q} events, SPc = {SPc} events a container",
        "NSP' = Q / SPc = {NSP'}",
        "n = {n} iterations, c = {c} containers in the first",
        "t_iter = {t_iter} s, L = {L} s, PPT = {PPT} s: n · t_iter > L and n · t_iter > PPT? {triggered}",
        "MNSP = {MNSP}",
        "NP = {NP}, NP' = {NP'}: NP' > NP? {NP' > NP}; NP' < NP? {NP' < NP}",
        "at most {most} functions",
        "scale: {scaler}",
        "containers = {containers}, events waiting = {waiting}, in the system = {in_system}, "
        "intervals passed = {intervals}",
        "containers = {containers}",
        "without events for {idle_for_s} s",
    ),
    marks=frozenset({"NSP'"}),
)


def _trade(terms: Terms) -> list[str]:
    """One replica fewer, the chosen number, and one more: late requests, their price, the choice."""
    lines = []
    for index, replicas in enumerate(as_list(terms["candidates"])):
        idle_s, change_s, late, cost = (number(as_list(terms[name])[index]) for name in TRADE[1:])
        lines.append(
            f"{replicas} replica{'s' if replicas > 1 else ''}: J = {idle_s} s idle + {change_s} s for the change "
            f"+ {number(terms['price_s'])} · {late} late = {cost}{' ← least' if index == terms['chosen'] else ''}"
        )
    return lines


TRADE = ("candidates", "idle_s", "change_s", "late", "cost")

NEWSVENDOR = Family(
    frozenset({"newsvendor-function"}),
    sentences(
        "λ_in = {rate_per_s}/s at the pipeline's entrance, changing by {trend}/s each second",
        "squared error of the forecast over its mean = {dispersion}",
        "service time = {service_s} s, a request has to start within {slack_s} s of its arrival",
        "services started so far = {started}",
        "to be started within {horizon_s} s: {due} requests, variance {variance}",
        "work until the next decision: {work} requests",
        "λ = {price_s} replica-seconds per late request, for {slo_share:%} before the deadline",
        Sentence(frozenset({*TRADE, "chosen", "price_s"}), _trade),
        "fewer replicas have been the better choice in {fewer_for} decisions before this one",
        "replicas = {replicas}, wanted = {wanted}",
    ),
    marks=frozenset({"change_s"}),
)

FAMILIES = (AMESOS, DWP, LASS, RPS, ELASTIC_FAAS, NEWSVENDOR)
