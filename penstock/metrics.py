"""Names of every metric that Penstock exports, in one typed place.

Prometheus' conventions: base units, ``_total`` on counters, the unit in the name.
"""

from typing import Final, Literal

# producers
EVENTS_SENT: Final = "penstock_events_sent_total"
EVENTS_ACKNOWLEDGED: Final = "penstock_events_acknowledged_total"
EVENTS_SEND_FAILED: Final = "penstock_events_send_failed_total"
SEND_DELAY: Final = "penstock_send_delay_seconds"

# consumers
EVENTS_PROCESSED: Final = "penstock_events_processed_total"
SERVICE_TIME: Final = "penstock_service_seconds"
ASSIGNED_PARTITIONS: Final = "penstock_assigned_partitions"
REBALANCES: Final = "penstock_rebalances_total"
RANGE_FALLBACKS: Final = "penstock_assignor_range_fallbacks_total"

# controller
TICKS: Final = "penstock_controller_ticks_total"
TICK_DURATION: Final = "penstock_controller_tick_seconds"
TICK_PHASE: Final = "penstock_controller_tick_phase_seconds"
HOLDING: Final = "penstock_controller_holding"
OBSERVATION_FAILURES: Final = "penstock_controller_observation_failures_total"
LAG: Final = "penstock_partition_lag_events"
ARRIVAL_RATE: Final = "penstock_partition_arrival_rate_per_second"
REPLICAS: Final = "penstock_replicas"
REPLICAS_DESIRED: Final = "penstock_scaler_desired_replicas"
SCALE_ACTIONS: Final = "penstock_scaler_actions_total"
PLAN_EPOCH: Final = "penstock_plan_epoch"

# pipelines
STAGE_EVENTS: Final = "penstock_stage_events_per_second"
STAGE_LATENCY: Final = "penstock_stage_latency_seconds"
STAGE_SLO_SHARE: Final = "penstock_stage_slo_share"
STAGE_PUBLISH_DELAY: Final = "penstock_stage_publish_delay_seconds"

MetricName = Literal[
    "penstock_events_sent_total",
    "penstock_events_acknowledged_total",
    "penstock_events_send_failed_total",
    "penstock_send_delay_seconds",
    "penstock_events_processed_total",
    "penstock_service_seconds",
    "penstock_assigned_partitions",
    "penstock_rebalances_total",
    "penstock_assignor_range_fallbacks_total",
    "penstock_controller_ticks_total",
    "penstock_controller_tick_seconds",
    "penstock_controller_tick_phase_seconds",
    "penstock_controller_holding",
    "penstock_controller_observation_failures_total",
    "penstock_partition_lag_events",
    "penstock_partition_arrival_rate_per_second",
    "penstock_replicas",
    "penstock_scaler_desired_replicas",
    "penstock_scaler_actions_total",
    "penstock_plan_epoch",
    "penstock_stage_events_per_second",
    "penstock_stage_latency_seconds",
    "penstock_stage_slo_share",
    "penstock_stage_publish_delay_seconds",
]
