"""Judges a load session of Locust as any run: ``python -m experiments.load_report DIRECTORY LEFT``.

LEFT events were in flight when it ended. Prints the file of the report.

The session has written the run's raw data; verdict, manifest and report are what ``penstock run`` makes of them.
"""

import sys
from pathlib import Path

from experiments.driver import manifest_of
from penstock.process_main import run_main
from penstock.rundir import RunDirectory
from report.analysis.measurement import analyse
from report.analysis.run_data import RunData
from report.gate import gate
from report.page import write_report


def judge(directory: RunDirectory, in_flight: int) -> Path:
    """Write summary, manifest, verdict and report of a session whose raw data are complete. Returns the report.

    PenstockError names what is missing.
    """
    summary = analyse(RunData(directory), in_flight=in_flight)
    directory.write(directory.manifest_file, manifest_of(directory, directory.spec(), summary))
    directory.write(directory.path / "verdict.json", gate([summary], None))
    write_report([RunData(directory)], directory.report_file)
    return directory.report_file


def main() -> int:
    """Entry point; the exit code."""

    def work() -> None:
        print(judge(RunDirectory.open(Path(sys.argv[1])), int(sys.argv[2])))  # noqa: T201 - the answer

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
