"""One file per kind of fleet: what the local world starts, breaks, waits for and clears away in a run of it."""
