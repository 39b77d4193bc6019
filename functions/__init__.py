"""Functions in the OpenFaaS shape, their gateway, and the dataflow of AMESoS. Empty until they run live."""
