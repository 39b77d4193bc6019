"""The Kubernetes world: brokers, monitoring, controller and consumers as pods."""
