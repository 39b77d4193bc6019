"""Functions in the OpenFaaS shape (``handlers``, ``template``, ``stack.yaml``), the processes that are their replicas
(``nursery``, ``replica``), the gateway in front of them (``gateway``), and the dataflow of AMESoS (``dataflow``).

A caller deploys with ``POST {gateway}/system/functions`` (``penstock.openfaas.deployment`` makes the body from a
``FunctionSpec``), scales with ``POST {gateway}/system/scale-function/{name}``, and invokes with ``POST
{gateway}/function/{name}``. A function's input is what the function before it answered; the first one's is the
request's payload, whatever it is. A function behind a merge is given one JSON object or list with the answers of all
functions that it waits for.
"""
