"""Names of every metric that Penstock exports, in one typed place.

Prometheus' conventions: base units, ``_total`` on counters, the unit in the name.
"""

from typing import Final

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
TICK_PHASE_ERROR: Final = "penstock_controller_tick_phase_error_seconds"
HOLDING: Final = "penstock_controller_holding"
OBSERVATION_FAILURES: Final = "penstock_controller_observation_failures_total"
LAG: Final = "penstock_partition_lag_events"
ARRIVAL_RATE: Final = "penstock_partition_arrival_rate_per_second"
REPLICAS: Final = "penstock_replicas"
REPLICA_START_UP: Final = "penstock_replica_start_up_seconds"
REPLICAS_DESIRED: Final = "penstock_scaler_desired_replicas"
SCALE_ACTIONS: Final = "penstock_scaler_actions_total"
PLAN_EPOCH: Final = "penstock_plan_epoch"

# controller, of the newest tick: the fleet, whatever its kind
FLEET_ARRIVED: Final = "penstock_fleet_arrived_events_total"
FLEET_COMPLETED: Final = "penstock_fleet_completed_events_total"
FLEET_BACKLOG: Final = "penstock_fleet_backlog_events"
FLEET_IN_FLIGHT: Final = "penstock_fleet_in_flight_events"
FLEET_SERVICE_RATE: Final = "penstock_fleet_service_rate_per_second"
UNKNOWN_FIELDS: Final = "penstock_observation_unknown_fields"

# controller, of the newest tick: limits that the run was given
REPLICAS_MAX: Final = "penstock_replicas_max"
SLO: Final = "penstock_slo_seconds"

# controller: the run itself
RUN_INFO: Final = "penstock_run_info"
RUN_START: Final = "penstock_run_start_timestamp_seconds"
RUN_DURATION: Final = "penstock_run_duration_seconds"

# controller, of the newest tick: decisions
SCALER_ACTING: Final = "penstock_scaler_acting"
SCALER_TERM: Final = "penstock_scaler_term"
SCALER_DECISION: Final = "penstock_scaler_decision_info"
SCALER_CLAMPED: Final = "penstock_scaler_clamped"
SCALER_LAST_ACTION: Final = "penstock_scaler_last_action_timestamp_seconds"

# controller, of the newest tick: a queue fleet
QUEUE_DEPTH: Final = "penstock_queue_depth_events"
QUEUE_IN_FLIGHT: Final = "penstock_queue_in_flight_events"
QUEUE_SERVERS: Final = "penstock_queue_servers"
QUEUE_ARRIVED: Final = "penstock_queue_arrived_events_total"
QUEUE_REJECTED: Final = "penstock_queue_rejected_events_total"
QUEUE_ROUTING: Final = "penstock_queue_routing_share"

# controller, of the newest tick: a pipeline of functions
FUNCTION_BUSY: Final = "penstock_function_busy_seconds_total"
FUNCTION_LAXITY: Final = "penstock_function_laxity_seconds"
PIPELINE_FINISHED: Final = "penstock_pipeline_finished_events_total"
PIPELINE_MISSED: Final = "penstock_pipeline_missed_deadlines_total"

# controller, of the newest tick: a pub/sub network
TOPIC_SERVICE_SCV: Final = "penstock_topic_service_scv_ratio"
JOB_ARRIVAL_RATE: Final = "penstock_job_arrival_rate_per_second"
JOB_ARRIVAL_SCV: Final = "penstock_job_arrival_scv_ratio"
NETWORK_RESPONSE: Final = "penstock_network_response_seconds"

# pipelines
STAGE_RESULTS: Final = "penstock_stage_results_total"
STAGE_SLO_MET: Final = "penstock_stage_slo_met_total"
STAGE_LATENCY: Final = "penstock_stage_latency_seconds"
STAGE_PUBLISH_DELAY: Final = "penstock_stage_publish_delay_seconds"

# penstock run
MACHINE_CPU: Final = "penstock_machine_cpu_share"
MACHINE_MEMORY: Final = "penstock_machine_memory_available_bytes"
FAULT: Final = "penstock_fault_timestamp_seconds"
PROGRAM_CPU: Final = "penstock_program_cpu_seconds_total"
RUN_VERDICT: Final = "penstock_run_verdict"
