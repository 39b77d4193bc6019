"""The sim world: brokers, replicas and functions in virtual time."""
