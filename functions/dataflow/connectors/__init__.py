"""Where requests come from: one file per kind of source. Each is acknowledged when it has left the pipeline."""
