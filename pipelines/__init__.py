"""PySpark: streaming and batch latency analytics, the Prometheus source, and their sinks."""
