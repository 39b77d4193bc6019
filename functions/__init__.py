"""OpenFaaS functions (``handlers``, ``template``, ``stack.yaml``), their replicas (``fork_server``, ``replica``,
``pod``), their gateway (``gateway``) and the pipeline manager of AMESoS (``dataflow``).

A function's input is the answer of the function before it, or the payload of the request. A merge receives one JSON
object or list with the answers of all its predecessors.
"""
