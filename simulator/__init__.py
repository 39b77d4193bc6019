"""The sim world: brokers, replicas and functions in virtual time.

Empty until it passes the conformance suite of the live ports.
"""
