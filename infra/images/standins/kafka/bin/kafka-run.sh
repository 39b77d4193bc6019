#!/bin/sh
# kafka-run.sh CLASS ARGUMENTS...: run a class of Kafka with the options that the official scripts take from the environment.
mkdir -p "${LOG_DIR:-/tmp/logs}"
# shellcheck disable=SC2086  # one word an option
exec java ${KAFKA_HEAP_OPTS:--Xmx1g} ${KAFKA_JVM_PERFORMANCE_OPTS:-} \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -Dorg.slf4j.simpleLogger.showDateTime=true \
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS" \
    -cp "/opt/kafka/libs/*" "$@"
