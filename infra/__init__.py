"""Worlds and what they stand on: the local services, later Kubernetes."""
