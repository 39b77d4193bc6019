"""Adapters to client libraries: Kafka, RabbitMQ, Kubernetes, Prometheus and the process manager."""
