"""The pipeline manager of AMESoS (Tsenos, Peri, Kalogeraki, DEBS 2022, sections 3.1 and 4): pipelines of functions.

Requests come in through a connector, wait in a queue for each function, and go to the gateway over as many connections
as the function has replicas. ``python -m functions.dataflow --run DIR`` runs the pipeline of one run.
"""
