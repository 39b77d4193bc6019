"""Worlds and what they stand on: the local services, and Kubernetes."""
