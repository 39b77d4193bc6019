"""A long run at a high rate with a fault every minute: conservation, and the memory of every process.

Run as ``python tests/bench/soak.py --seconds 7200``, on a machine with the local services installed (`penstock setup`).
It starts its own services in its own folder and plays ``binpack-workload-1`` under an on-off load: 1,000 events/s for
nine and a half minutes, then nothing for half a minute. The consumer group may scale to zero. It injects one fault a
minute and samples the resident memory of every process. Claimed: no event is lost, finished twice or left
over, and no process that lives for a quarter of the run grows by more than ``GROWTH_MB`` between the medians of the
second and of the last quarter of its life.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

from infra.local.state import MARKER

GROWTH_MB = 32.0
"""Noise of a resident set: a garbage collector's slack, a page cache of a client."""
SAMPLE_S = 10.0
FAULTS = (
    "kill-worker", "kill-controller", "freeze-workers+5", "stop-broker+5", "restart-redis+3", "kill-all-workers",
    "blind-monitor+10",
)  # fmt: skip
"""Kinds that a consumer group meets, with the seconds of those that last."""
PORTS = (
    "KAFKA", "KAFKA_CONTROLLER", "RABBITMQ", "RABBITMQ_MANAGEMENT", "RABBITMQ_METRICS", "RABBITMQ_NODE",
    "RABBITMQ_EPMD", "REDIS", "GATEWAY", "PROMETHEUS", "GRAFANA",
)  # fmt: skip


def faults(seconds: float, seed: int) -> Iterator[str]:
    """One a minute, the kinds in turn, at a drawn second of the minute."""
    drawn = random.Random(seed)
    for minute in range(1, int(seconds // 60)):
        kind, _, lasting = FAULTS[minute % len(FAULTS)].partition("+")
        at_s = minute * 60 + drawn.randrange(0, 40)
        yield f"{kind}@{at_s}s+{lasting}s" if lasting else f"{kind}@{at_s}s"


def processes(state: str) -> Iterator[psutil.Process]:
    """All that were started with this state folder."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if state in (environment.get("PENSTOCK_STATE"), environment.get(MARKER)):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue


def name(process: psutil.Process) -> str:
    """The module or program that a process runs."""
    words = process.cmdline()
    for before, word in pairwise(words):
        if before == "-m":
            return word
    if any("kafka.Kafka" in word for word in words):
        return "kafka"
    return next((Path(word).name for word in words[1:] if word.endswith("penstock")), process.name())


def sample(state: str, seen: dict[tuple[str, int], list[tuple[float, float]]], at_s: float) -> None:
    """Add the resident memory (MB) of each process."""
    for process in processes(state):
        try:
            seen[name(process), process.pid].append((at_s, process.memory_info().rss / 1e6))
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue


def growth(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Medians (MB) of the second and of the last quarter of a life."""
    quarter = len(samples) // 4
    return (
        median(mb for _, mb in samples[quarter : 2 * quarter]),
        median(mb for _, mb in samples[-quarter:]),
    )


def command(options: argparse.Namespace) -> list[str]:
    """The run as anybody would type it."""
    words = [
        "run", "binpack-workload-1", "--scaler", "keda-kafka", "--seconds", f"{options.seconds:g}s",
        "--workload", f"on-off:on_per_s={options.rate:g},on_s=570,off_s=30,duration_s={options.seconds:g}",
        "--partitions", "8", "--max-replicas", "4", "--initial-replicas", "0", "--shadows", "none", "--no-spark",
        "--service-time", "1ms", "--set", "worker.commit_every=100", "--set", "worker.commit_interval_s=0.1",
        "--set", "keda-kafka.poll_interval_s=2", "--set", "keda-kafka.cooldown_s=10",
        "--set", "keda-kafka.lag_threshold=5", "--set", "keda-kafka.stabilisation_s=20", "--seed", str(options.seed),
    ]  # fmt: skip
    for fault in faults(options.seconds, options.seed):
        words += ["--fault", fault]
    return words


def run(options: argparse.Namespace, folder: Path) -> int:
    """Services up, the run, services down; exit code 1 if a claim does not hold."""
    penstock = str(Path(sys.executable).parent / "penstock")
    state = str(folder / "state")
    environment: Mapping[str, str] = {
        **os.environ,
        **{f"PENSTOCK_{port}_PORT": "0" for port in PORTS},
        "PENSTOCK_STATE": state,
        "PENSTOCK_RUNS": str(folder / "runs"),
    }
    seen: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    subprocess.run([penstock, "up"], env=environment, check=True, stdout=sys.stderr)
    try:
        began_s = told_s = time.monotonic()
        with subprocess.Popen([penstock, *command(options)], env=environment, stdout=sys.stderr) as played:
            while played.poll() is None:
                time.sleep(SAMPLE_S)
                at_s = time.monotonic() - began_s
                if at_s < options.seconds:  # what comes after is the analysis
                    sample(state, seen, at_s)
                if at_s - told_s > 300:
                    told_s = at_s
                    print(f"{at_s:.0f} of {options.seconds:g} s", file=sys.stderr, flush=True)
    finally:
        subprocess.run([penstock, "down"], env=environment, check=False, stdout=sys.stderr)
    return told(options, folder, seen, played.returncode)


def told(
    options: argparse.Namespace, folder: Path, seen: Mapping[tuple[str, int], list[tuple[float, float]]], code: int
) -> int:
    """Print what came out."""
    found = list((folder / "runs").glob("*/verdict.json"))
    found = [each for each in found if not each.parent.name.endswith("-compare")]
    if len(found) != 1:
        print(f"the run has no verdict; exit code {code}")
        return 1
    print(json.dumps(json.loads(found[0].read_text()), indent=1))
    print(f"exit code {code}; faults: {len(list(faults(options.seconds, options.seed)))}")
    grew = []
    print("| process | lives | its longest life, s | second quarter, MB | last quarter, MB |\n|---|---|---|---|---|")
    lives: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    for (process, _), samples in seen.items():
        lives[process].append(samples)
    for process, each in sorted(lives.items()):
        samples = max(each, key=len)
        long = [life for life in each if len(life) >= 4 and life[-1][0] - life[0][0] > options.seconds / 4]
        before, after = growth(samples) if len(samples) >= 4 else (samples[0][1], samples[-1][1])
        print(f"| {process} | {len(each)} | {samples[-1][0] - samples[0][0]:.0f} | {before:.0f} | {after:.0f} |")
        grew += [process for life in long if growth(life)[1] - growth(life)[0] > GROWTH_MB]
    print(f"grew by more than {GROWTH_MB:g} MB: {', '.join(grew) or 'none'}")
    return int(bool(grew) or code not in (0, 99))


def main() -> int:
    """Exit code 0: nothing was lost and nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep services' state and the run here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    try:
        return run(options, folder.resolve())
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
