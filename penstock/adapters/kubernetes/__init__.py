"""Deployments whose pods are replicas with names: for the controller's actuator and the functions' gateway."""
