"""One folder a paper: what to run, what it printed, what we get; drives runs and writes the comparison report."""
