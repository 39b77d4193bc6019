"""The local world: real services and replicas as ordinary processes of this machine."""
