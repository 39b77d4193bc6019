#!/bin/sh
exec "$(dirname "$0")/kafka-run.sh" kafka.Kafka "$@"
