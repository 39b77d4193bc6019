"""A run on an open pub/sub network: topics are RabbitMQ queues, through which a job goes step by step."""

from infra.local.runs.queue import RabbitRun


class NetworkRun(RabbitRun):
    """Nothing beside what all runs on RabbitMQ have: the apps themselves pass a job on."""
