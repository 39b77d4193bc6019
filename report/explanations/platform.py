"""Autoscalers of clusters and platforms: HPA, KEDA, Knative's KPA, OpenFaaS; DS2 and Flink's."""

from report.explanations.wording import Family, sentences

HPA_SENTENCES = sentences(
    "replicas = {scaling_disabled_at}: an HPA does not scale from zero",
    "replicas = {replicas}, brought within the bounds: {bounded}",
    "Σ metric = {sum}, target per replica = {target}",
    "replicas = {replicas}, ready = {ready}",
    "replicas = {replicas}, existing = {existing}",
    *(
        f"ratio = Σ metric / (target · {{{counted}}} {counted}) = {{ratio}}: "
        "|1 − ratio| = {deviation} ≤ tolerance = {tolerance}? {within_tolerance}"
        for counted in ("ready", "existing")
    ),
    "ratio = Σ metric / (target · {ready} ready) = {ratio} > 1; with the unready ones as pods without load "
    "{ratio_of_all} ≤ 1 + tolerance = 1 + {tolerance}? {within_tolerance}",
    "desired = {desired} (⌈Σ metric / target⌉; if yes, the replicas that there are)",
    "highest desired of {recommendations_in_window} in the stabilisation window of {stabilisation_s} s "
    "= {highest_in_window}",
    "stabilised = {stabilised}: the highest, or a rise as desired where the HPA has a behavior (here? {behavior})",
    "scale-up limit = max({up_factor} · {replicas}, {up_to_pods}) = {scale_up_limit}",
    "scale-up limit = max({up_factor} · {replicas_before}, {replicas_before} + {up_pods}) = {scale_up_limit}, from the "
    "replicas at the beginning of the policies' period",
)

HPA = Family(frozenset({"hpa"}), (*sentences("metric: {metric}"), *HPA_SENTENCES))

KEDA = Family(
    frozenset({"keda-kafka", "keda-rabbitmq"}),
    (
        *sentences(
            "messages, ready and unacknowledged = {messages} (mode {mode})",
            "published {publish_per_s}/s, delivered {deliver_per_s}/s",
            "total lag of the group = {total_lag_of_group}",
            "metric = {metric}, target per replica = {target}",
            "trigger active? {active}; polled now? {polled}",
            "inactive for {quiet_s} s > cooldown = {cooldown_s} s? {quiet_s > cooldown_s}",
        ),
        *HPA_SENTENCES,
    ),
)

OVER = "panic / ready = {panic_ratio} ≥ threshold = {panic_threshold}? {panic_ratio ≥ panic_threshold}"

KPA = Family(
    frozenset({"kpa"}),
    sentences(
        "requests in the system = {in_system}",
        "average over the stable window of {stable_window_s} s = {stable_average}, "
        "over the panic window of {panic_window_s} s = {panic_average}",
        "target per replica = {target_concurrency} · {target_utilisation} = {target}",
        "one step: {step_least} to {step_most} replicas",
        "stable: ⌈average / target⌉ = {stable}, within the limits of one step {stable_limited}",
        "panic: ⌈average / target⌉ = {panic}, within the limits of one step {panic_limited}",
        f"{OVER}; in panic? {{in_panic}}, begun or renewed {{panic_for_s}} s ago",
        f"{OVER}; in panic? {{in_panic}}",
        "desired = {desired}",
    ),
)

OPENFAAS = Family(
    frozenset({"openfaas-ce", "openfaas-pro"}),
    sentences(
        "completed {rate_per_s}/s > {alert_rate_per_s}/s? {rate_per_s > alert_rate_per_s}",
        "above for {above_for_s} s",
        "step = ⌈max / 100 · factor⌉ = {step}, at most {most}",
        "alert: {alert}",
        "load of type {type} = {load}",
        "mean load = load / ready = {mean_load}",
        "target per replica = {target}, of which {target_proportion:%}",
        "desired = ⌈ready · mean load / (target · proportion)⌉ = {desired}",
    ),
)

DATAFLOW = Family(
    frozenset({"ds2", "flink"}),
    sentences(
        "in this state since {since_s} s; stabilisation interval = {stabilisation_s} s",
        "lag = {lag} events",
        "input rate λ = {input_rate_per_s}/s",
        "true rate of one replica = {true_rate_per_s}/s ({true_rate_from})",
        "headroom f = {headroom}",
        "needed = ⌈(1 + f) · λ / true rate⌉ = {needed}",
        "capacity = replicas · true rate = {capacity_per_s}/s",
        "target capacity = {target_capacity_per_s}/s",
        "utilisation boundary: {scale_up_below_per_s} ≤ capacity ≤ {scale_down_above_per_s:unbounded}/s? "
        "outside: {outside}",
        "recommended = ⌈replicas · target / capacity⌉ = {recommended}",
        "lag above {backlog_lag_s} s of the throughput, a backlog: no scale-in",
        "up to a divisor of the {partitions} partitions: {aligned}",
        "scale-in first recommended at {scale_in_since_s} s; largest recommendation since = {largest_in_interval}; "
        "interval not over, waits? {waits}",
    ),
)

FAMILIES = (HPA, KEDA, KPA, OPENFAAS, DATAFLOW)
