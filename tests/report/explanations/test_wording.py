"""Every scaler's decisions read like its paper: its symbols with the numbers of ``why``, nothing by its raw name."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.scalers.linear import Linear, LinearParameters, Reading
from controller.scalers.optimal import Optimal, OptimalParameters
from penstock.contracts import (
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    JobStatus,
    NetworkObservation,
    PartitionObservation,
    QueueObservation,
    QueueStatus,
    StreamObservation,
    TopicStatus,
    hold,
)
from report.explain import WIDTH, all_families, body, explain, family_of, find_sentence, find_table
from report.explanations.wording import FIELDS, MANY, Table, fill, number, places, readable, table


def load_worlds() -> Any:
    """The observation makers of the tests of every scaler: a neighbouring file, in a folder that is no package."""
    name, path = (
        "every_scaler_for_explanations",
        Path(__file__).parents[2] / "controller" / "scalers" / "test_every_scaler.py",
    )
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


EVERY = load_worlds()

EVERY_OBSERVATION = (
    FleetObservation,
    StreamObservation,
    QueueObservation,
    FunctionObservation,
    NetworkObservation,
)

TIMELINE = [
    *[(120, 90, 0, False)] * 3,
    *[(300, 120, 1, False)] * 4,
    *[(0, 5, 0, False)] * 25,
    *[(50, 50, 2, False)] * 4,
    (0, 0, 0, True),
]

SYMBOLS = {"t_iter", "tr_t", "f_up", "f_down", "t_r", "laxity_90", "avg", "cs", "ca"}
"""The papers' own, although they look like names of variables."""

SETTINGS = {"announced_peak_per_s"}
"""Parameters that a sentence names as the way out."""

SAID: dict[str, tuple[str, ...]] = {
    "newsvendor": (
        "believed: μ = {service_rate_per_s}/s (told), start-up = {start_up_s} s (told), t_r = {rebalance_time_s} s (",
        "m = {forecast} events per interval",
        "β = {burstiness}: 0 for smooth arrivals, 1 for bursts",
        "λ = {price_s} replica-seconds per late event, for {slo_share:%} within the SLO",
        "J = {horizon_s} · ({wanted} + {price_s} · (",
        "← least",
    ),
    "newsvendor-function": (
        "to be started within {horizon_s} s: {due} requests",
        "λ = {price_s} replica-seconds per late request, for {slo_share:%} before the deadline",
        "{wanted} replica",
        "s for the change + {price_s} · ",
        "← least",
    ),
    "newsvendor-network": (
        "contract: {slo_share:%} of the jobs within {slo_s} s; late though none waits: {late_without_waits:%}",
        "λ_in of the jobs {jobs} = {rates_per_s}/s",
        "λ = {price_s} consumer-seconds per late job",
    ),
    "newsvendor-queue": (
        "λ_in = {rate_per_s}/s",
        "μ of a container = {service_rate_per_s}/s, K = {K}",
        "λ = {price_s} queue-seconds per event that is not served within {slo_s} s, for {slo_share:%} that are",
        " queue-seconds + {price_s} · ",
        "← least",
        "queues = {replicas}, wanted = {wanted}",
    ),
    "amesos": (
        "λ = {lambda_per_s}/s",
        "S_t = {S_per_s}/s",
        "tr_t = {tr_per_s}/s",
        "λ_pred = max(0, S_t + tr_t) = {lambda_pred_per_s}/s",
        "μ = λ_pred / ρ = {mu_per_s}/s, avgProcessTime = {avgProcessTime_s} s",
        "c' = ⌈μ · avgProcessTime⌉ = {c_new}",
        "laxity_90 = {laxity_90_s} s of {messages} messages",
        "up: laxity_90 < threshold = {threshold_s} s? {laxity_90_s < threshold_s}; c' = {c_new} > c = {c}? {c_new > c}",
    ),
    "binpack": (
        "bin at f_up: lag ≤ μ·w·f = {bin_up.0}, rate ≤ μ·f = {bin_up.1}/s",
        "|G| = {replicas}",
        "|Least-Loaded(lag, f_up)| = {LL_up} > {replicas}? {LL_up > replicas}: {LL_up_groups:groups}",
        "flag: {flag:none}",
    ),
    "binpack-tail": (
        "t_r = {rebalance_time_s} s",
        "total lag = lag + λ·t_r",
        "|Least-Loaded(total lag, f_up)| = {LL_total_up} > {replicas}? {LL_total_up > replicas}",
    ),
    "binscale": ("|G| = {replicas}", "total lag = lag + Σλ·t_r/P", "t_r = {rebalance_time_s} s"),
    "ds2": (
        "input rate λ = {input_rate_per_s}/s",
        "true rate of one replica = {true_rate_per_s}/s ({true_rate_from})",
        "⌈(1 + f) · λ / true rate⌉ = {needed}",
    ),
    "dwp": (
        "λ_pred = max(0, S_t + tr_t) = {lambda_pred_per_s}/s",
        "missed in this epoch: {missed_share:%}; up: > {up_share:%}? {missed_share > up_share};",
        "; down: ≤ {down_share:%}? {missed_share ≤ down_share}",
        "μ = λ_pred / ρ = λ_pred / {rho} = {mu_per_s}/s",
    ),
    "elastic-faas": (
        "Q = {Q} events, SPc = {SPc} events a container",
        "NSP' = Q / SPc = {NSP'}",
        "n = {n} iterations, c = {c}",
        "t_iter = {t_iter} s, L = {L} s, PPT = {PPT} s: n · t_iter > L and n · t_iter > PPT? {triggered}",
        "MNSP = {MNSP}",
        "NP = {NP}, NP' = {NP'}: NP' > NP? {NP' > NP}",
    ),
    "elastic-faas-published": ("NSP' = Q / SPc = {NSP'}", "NP = {NP}, NP' = {NP'}"),
    "faas": ("NP = {NP}, NP' = {NP'}",),
    "flink": (
        "lag = {lag} events",
        "capacity = replicas · true rate = {capacity_per_s}/s",
        "target capacity = {target_capacity_per_s}/s",
        "{scale_up_below_per_s} ≤ capacity ≤ {scale_down_above_per_s:unbounded}/s? outside: {outside}",
        "⌈replicas · target / capacity⌉ = {recommended}",
    ),
    "hpa": (
        "Σ metric = {sum}, target per replica = {target}",
        "ratio = Σ metric / (target · {existing} existing) = {ratio}: |1 − ratio| = {deviation} ≤ tolerance",
        "≤ tolerance = {tolerance}? {within_tolerance}",
        "of {recommendations_in_window} in the stabilisation window of {stabilisation_s} s = {highest_in_window}",
        "stabilised = {stabilised}: the highest",
        "scale-up limit = max({up_factor} · {replicas}, {up_to_pods}) = {scale_up_limit}",
        "wanted = {wanted} (bounds {min_replicas} … {max_replicas:unbounded})",
    ),
    "keda-kafka": ("total lag of the group = {total_lag_of_group}", "trigger active? {active}", "desired = {desired}"),
    "keda-rabbitmq": ("messages, ready and unacknowledged = {messages}", "trigger active? {active}", "ratio = "),
    "kpa": (
        "average over the stable window of {stable_window_s} s = {stable_average}",
        "over the panic window of {panic_window_s} s = {panic_average}",
        "target per replica = {target_concurrency} · {target_utilisation} = {target}",
        "one step: {step_least} to {step_most} replicas",
        "panic / ready = {panic_ratio} ≥ threshold = {panic_threshold}? {panic_ratio ≥ panic_threshold}",
        "in panic? {in_panic}, begun or renewed {panic_for_s} s ago",
        "stable: ⌈average / target⌉ = {stable}",
        "panic: ⌈average / target⌉ = {panic}",
        "in panic? {in_panic}",
    ),
    "lass": (
        "λ = {lambda_per_s}/s",
        "at least {burst_factor} times",
        "μ = {mu_per_s}/s",
        "c = {c}: ρ = λ / (c·μ) = {utilisation}, C(c, λ/μ) = {C}",
        "= {P_W_at_most_t} with t = {t_s} s: ≥ {wanted_probability}? {P_W_at_most_t ≥ wanted_probability}",
        "one container less, c = {one_less}: {P_one_less} ≥ {wanted_probability}? {P_one_less ≥ wanted_probability}",
    ),
    "lass-as-coded": (
        "t = {t_used_s} s where {wait_s} s are meant: finds ⌊t·c·μ + c − 1⌋ = {n_before}",
        "P(W ≤ t) as Σ P_n up to that = {P_W_at_most_t}: ≥ {wanted_probability}?",
    ),
    "least-loaded": ("|G| = {replicas}", "|Least-Loaded(lag, f_up)| = {LL_up} > {replicas}? {LL_up > replicas}"),
    "linear": (
        "Σλ = {total_rate_per_s}/s",
        "a replica at f_up: μ·w·f = {mu_per_s}/s · {w_s} s · {f_up} = {capacity_up} events",
        "⌈Σλ · {lag_s} s / capacity at f_up⌉ = {needed_up}",
        "wanted = {wanted}, at most {most}",
    ),
    "min-cost": (
        "R measured = {response_time_s} s > limit = {response_limit_s} s? {response_time_s > response_limit_s}",
        "T = {T_s} s",
        "start: m = (1, 1), R = ∞ s",
        "step 1: +1 for topic D, m = (1, 2)",
        "  the most overloaded, by ρ_j: D ",
        "R = {R_s} s",
        "WIP = Σ L_j = {WIP}, R = WIP / Σλ = {R_s} s",
        "ρ_j",
        "L_j",
    ),
    "min-time": (
        "M = {M} consumers",
        "start: m = (1, 1), R = ∞ s",
        "step 1: +1 for topic D, m = (1, 2)",
        "  the most overloaded, by ρ_j: D ",
        "  the largest gain, L_j(m_j) − L_j(m_j + 1): A ",
        "WIP = Σ L_j = {WIP}, R = WIP / Σλ = {R_s} s",
    ),
    "multiqueue": (
        "λ of the main queue = {lambda_main}/s",
        "avg(P_K) = {avg_P_K} > maxP_K = {max_P_K}? {avg_P_K > max_P_K}; < minP_K = {min_P_K}? {avg_P_K < min_P_K}",
        "avg(S) = {avg_S} = maxS = {max_S}? {avg_S = max_S}",
        "S (containers)",
    ),
    "multiqueue-damped": ("settled avg(P_K) = {settled_P_K} < minP_K? {settled_P_K < min_P_K}",),
    "mwf-rscore": ("C = {capacity_per_s}/s", "Rscore = Σλ of the partitions that move / C = {r_score}", "= {MWF}: "),
    "openfaas-ce": ("completed {rate_per_s}/s > {alert_rate_per_s}/s? {rate_per_s > alert_rate_per_s}", "{alert}"),
    "openfaas-pro": ("⌈ready · mean load / (target · proportion)⌉ = {desired}", "{target_proportion:%}"),
    "overprovision": ("|G| = {replicas}", "|Least-Loaded(peak)| = {LL_peak}", "peak λ = {peak_rate_per_s}/s"),
    "provider-ramp": ("containers = {containers}, events waiting = {waiting}, in the system = {in_system}",),
    "random": ("M = {M} consumers", "start: m = (1, 1)", "step 1: +1 for topic number"),
    "rps": (
        "currentLoad = {currentLoad_per_s}/s",
        "targetLoadPerReplica = ρ · μ = {rho} · {mu_per_s}/s = {targetLoadPerReplica_per_s}/s",
        "⌈currentLoad / targetLoadPerReplica⌉ = {desired}",
    ),
    "single-queue": ("queues = {queues}, wanted = {wanted}",),
}


@cache
def decisions(name: str) -> tuple[Decision, ...]:
    """All that a scaler decides while load comes, stays away, and cannot be read; on every kind of fleet."""
    scaler = EVERY.make(name)
    taken = []
    for world in EVERY.worlds_of(scaler):
        state = scaler.start(7)
        for tick in TIMELINE:
            decision, state = scaler.decide(world.observe(tick), state)
            taken.append(decision)
            world.follow(decision)
    return tuple(taken)


def terms_of(name: str) -> Iterator[dict[str, Any]]:
    for decision in decisions(name):
        yield from (dict(terms) for terms in decision.why.values() if decision.action != "hold")


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_the_papers_symbols_stand_with_the_numbers_of_the_decision(name: str) -> None:
    """Each expected text is found in the explanation of every decision that has its terms, and there is such a one."""
    for text in SAID[name]:
        found = 0
        names = set(places(text))
        for decision in decisions(name):
            if decision.action == "hold":
                continue
            # A network's terms come first, those of its topics have other symbols.
            terms = next(iter(decision.why.values()))
            said = "\n".join(body(name, terms))
            if names <= terms.keys() and (names or text in said):
                expected = fill(text, terms)
                assert expected in said
                found += 1
        assert found, text


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_no_term_is_printed_by_its_raw_name(name: str) -> None:
    for terms in terms_of(name):
        family = family_of(name, terms)
        assert name in family.scalers
        for term in terms.keys() - {"action", "current_from"}:
            in_table = find_table(family, term, terms)
            assert in_table or find_sentence(family, term, terms), f"{term} has no wording"
        said = re.findall(r"\b[a-zA-Z]+(?:_[a-zA-Z0-9]+)+\b", "\n".join(body(name, terms)))
        raw = {
            word
            for word in said
            if word not in SYMBOLS | SETTINGS and not re.fullmatch(r"(max|min)?[PSLcmρ]_[a-zA-Z]+", word)
        }
        assert not raw & {*terms} - {"P_K"}
        assert not {word for word in raw if word == word.lower()}


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    for decision in decisions(name):
        for line in explain(name, decision).splitlines():
            assert len(line) <= WIDTH == 160
            assert line == line.rstrip()


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_g_is_the_replicas_of_bin_packing_only(name: str) -> None:
    packs = name in {"binpack", "binpack-tail", "binscale", "least-loaded", "overprovision"}
    assert any("|G| =" in explain(name, decision) for decision in decisions(name)) == packs


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_a_hold_tells_its_reason(name: str) -> None:
    for decision in decisions(name):
        if decision.action == "hold":
            for fleet, terms in decision.why.items():
                assert f"{name} on {fleet}: hold\n" in explain(name, decision) + "\n"
                assert "reason: " + readable(str(terms["reason"]))[:60] in explain(name, decision)


@pytest.mark.parametrize("name", EVERY.EVERY)
def test_a_hold_names_no_field_of_an_observation(name: str) -> None:
    for decision in decisions(name):
        if decision.action == "hold":
            for word in set(FIELDS) - set(FIELDS.values()):
                assert not re.search(rf"\b{word}( is unknown|:)", explain(name, decision))


def test_every_field_that_may_be_unknown_has_words() -> None:
    kinds = (*EVERY_OBSERVATION, PartitionObservation, QueueStatus, FunctionStatus, TopicStatus, JobStatus)
    fields = [field for kind in kinds for field in msgspec.structs.fields(kind)]
    optional = {field.name for field in fields if "None" in str(field.type)}
    assert optional - {"capacity"} == set(FIELDS) - {"laxity_s"}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("backlog is unknown", "backlog is unknown"),
        ("busy_s is unknown (it is away)", "busy time is unknown (it is away)"),
        (
            "no rate yet (partitions.3.committed_offset: no commit yet; arrived: unknown for partition 3)",
            "no rate yet (committed offset of partition 3: no commit yet; number of arrivals: unknown for partition 3)",
        ),
        ("queues.q-1.depth: no answer", "depth of queue q-1: no answer"),
        ("true rate is unknown: set service_rate_per_s", "true rate is unknown: set service_rate_per_s"),
        ("at 12:30 the end", "at 12:30 the end"),
        ("holding: 2 unknown, first backlog: away", "holding: 2 unknown, first backlog: away"),
    ],
)
def test_a_reason_has_fields_in_words_and_parameters_by_their_names(reason: str, said: str) -> None:
    assert readable(reason) == said


def test_every_scaler_has_expectations_and_one_family() -> None:
    assert set(SAID) == set(EVERY.EVERY)
    known = [scaler for family in all_families() for scaler in family.scalers]
    assert sorted(known) == sorted({*EVERY.EVERY, "optimal"})


def test_the_clairvoyant_one_is_worded_too() -> None:
    world = EVERY.StreamWorld(1.0)
    scaler = Optimal(OptimalParameters(rates_per_s=(300.0,)))
    decision, _ = scaler.decide(world.observe((120, 90, 0, False)), scaler.start(1))
    text = explain("optimal", decision)
    assert "Σλ = 300/s" in text
    assert "one replica carries 85/s" in text
    assert "_" not in text


# --- the parts of it -------------------------------------------------------------------------------------------------


def test_a_term_that_nobody_knows_is_told_by_its_name_and_unit() -> None:
    why = {"f": {"mean_load_per_s": 2.5, "grace_s": 3, "lambda_per_s": 1.0, "is_late": True, "replicas": 2}}
    assert explain("mine", Decision(action="none", why=why)).splitlines()[1:] == [
        "  mean load: 2.5/s",
        "  grace: 3 s",
        "  λ: 1/s",
        "  is late: yes",
        "  replicas = 2",
    ]


def test_a_variant_of_a_scaler_under_another_name_is_told_by_its_terms() -> None:
    (first, *_) = (terms for terms in terms_of("binpack") if "LL_up" in terms)
    assert body("my-packing", first) == body("binpack", first)


@pytest.mark.parametrize(
    ("one", "sign", "other", "outcome"),
    [
        (2, ">", 1, "yes"),
        (1, ">", 1, "no"),
        (1, "≥", 1, "yes"),
        (0.5, "<", 1, "yes"),
        (1, "≤", 0, "no"),
        ("≥ 4", "<", 4, "no"),
        ("inf", ">", 1e9, "yes"),
        ("+inf: no message (A7)", "<", 0.2, "no"),
        (None, ">", 1, "unknown"),
        ("much", ">", 1, "unknown"),
    ],
)
def test_an_inequality_has_an_outcome_or_is_unknown(one: Any, sign: str, other: Any, outcome: str) -> None:
    assert fill(f"{{one {sign} other}}", {"one": one, "other": other}) == outcome


@pytest.mark.parametrize(
    ("term", "said"),
    [(1.0, "1"), (0.12345, "0.123"), (0.00012, "0.00012"), (0.0, "0"), ("inf", "∞"), (None, "unknown")],
)
def test_numbers_are_short_and_none_is_lost(term: Any, said: str) -> None:
    assert number(term) == said


def test_wide_tables_and_long_lines_go_on_below() -> None:
    of = Table("topics", {"topics": "topic", "rho_j": "ρ_j"}, "topics")
    terms: dict[str, Any] = {"topics": [f"a-long-topic-{j}" for j in range(40)], "rho_j": [0.5] * 40}
    rows = table(of, terms, 80)
    assert max(map(len, rows)) <= 80
    assert sum(row.count("a-long-topic-") for row in rows) == MANY
    assert rows[-1] == f"… and {40 - MANY} topics more"
    text = explain("mine", hold("f", "because " * 60))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.count("because") == 60


def test_the_gain_of_each_step_is_told_where_it_is_finite() -> None:
    terms: dict[str, Any] = {
        "path": [[1, 1], [1, 2], [2, 2]],
        "R_after_each_s": ["inf", 3.0, 1.5],
        "topics": ["A", "D"],
    }
    said = [line for line in body("min-cost", terms) if "m = " in line]
    assert said == [
        "start: m = (1, 1), R = ∞ s",
        "step 1: +1 for topic D, m = (1, 2), R = 3 s",
        "step 2: +1 for topic A, m = (2, 2), R = 3 − 1.5 = 1.5 s",
    ]


def test_each_step_tells_what_it_compared_of_all_topics_before_it_chose() -> None:
    terms: dict[str, Any] = {
        "path": [[1, 1], [1, 2], [2, 2]],
        "R_after_each_s": ["inf", 3.0, 1.5],
        "compared": ["rho", "delta_L"],
        "candidates": [[0.0, 1.25], [0.3, 0.1]],
        "topics": ["A", "D"],
        "lambda_per_min": [6.0, 6.0],
    }
    assert [line for line in body("min-time", terms) if line.startswith("  ")] == [
        "  the most overloaded, by ρ_j: D 1.25",
        "  the largest gain, L_j(m_j) − L_j(m_j + 1): A 0.3 (ΔR 1.5 s), D 0.1 (ΔR 0.5 s)",
    ]


@pytest.mark.parametrize("reading", ["lag", "rate"])
def test_linear_tells_the_capacity_of_a_replica_both_ways(reading: Reading) -> None:
    scaler = Linear(LinearParameters(reading=reading, hysteresis=True))
    world, state = EVERY.StreamWorld(1.0), scaler.start(1)
    for _ in range(2):
        decision, state = scaler.decide(world.observe((120, 90, 0, False)), state)
    said = explain("linear", decision)
    assert "_" not in re.sub("f_(up|down)", "", said)
    whole = {
        "lag": ("μ·w·f = 200/s · 0.5 s · 0.9 = 90 events", "40 events"),
        "rate": ("μ·f = 200/s · 0.9 = 180/s", "80/s"),
    }
    assert whole[reading][0] in said
    assert f"at f_down: μ·{'w·' if reading == 'lag' else ''}f = " in said and f"= {whole[reading][1]}" in said
