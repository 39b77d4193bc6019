"""The gateway: HAProxy carries requests, a control plane in Python speaks the OpenFaaS provider API.

``python -m functions.gateway --state FOLDER --port PORT`` starts both. HAProxy has a backend for each function with one
request at a time per replica; the control plane starts replicas, lets them join once they are ready, drains them
before they go, and is not on the way of a request. ``provider`` has the HTTP interface, ``penstock.openfaas`` its
records.
"""
