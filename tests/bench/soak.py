"""A long run at a high rate with a fault every minute: conservation, and the memory of every process.

Run as ``python tests/bench/soak.py --seconds 7200``, on a machine with the local services installed (`penstock setup`).
It starts its own services in its own folder and plays ``binpack-workload-1`` under an on-off load: 1,000 events/s for
nine and a half minutes, then nothing for half a minute. The consumer group may scale to zero. It injects one fault a
minute and samples the resident memory of every process. Claims, each printed with its figures:

- No event is lost, finished twice, left over or failed; the three counts agree; every fault was injected and each kind
  had an effect.
- No process grows by more than ``GROWTH_MB``. One that lives for a quarter of the run: between the medians of the
  second and of the last quarter of its life. Programs that faults start again and again: between the lives that begin
  in the second and in the last quarter of the run, at the same age (``AGE_S``).
- ``STORES`` keep the run's data: their memory is printed and not judged.

Exit code 1 where a claim does not hold. A program that could not be judged fails a run of ``WHOLE_S`` or longer.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

from experiments.chaos import finished_twice
from infra.local.settings import ServiceSettings
from infra.local.state import MARKER
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData

GROWTH_MB = 32.0
"""Noise of a resident set: a garbage collector's slack, a page cache of a client."""
OF_A_JVM_MB = 128.0
"""The same for Kafka, whose heap of 512 MB fills at its collector's pace: 424 to 660 MB in its first two minutes."""
SAMPLE_S = 10.0
AGE_S = (30.0, 90.0)
"""Age at which the lives of a program are compared: after its start, before most faults end it."""
WHOLE_S = 3600.0
BYTES_PER_EVENT = 2_000
"""On the disk: event and result in Kafka, booking in Redis, and the run directory."""
STORES = {"redis-server": "the ledger, a booking per event", "prometheus": "the series of each replica"}
EXPECTED = {"kafka", "redis-server", "prometheus", "controller.main", "consumers.worker", "producers.send", "penstock",
            "infra.local.daemon"}  # fmt: skip
"""Programs of every soak; one that was not seen is an error of the sampling."""
READY_TIMEOUT_S = 600.0
"""Redis reads five million bookings in a minute after it was restarted, on a busy machine."""
Life = list[tuple[float, float]]
"""Samples of a process: seconds from the begin of the run, MB."""
FAULTS = (
    "kill-worker", "kill-controller", "freeze-workers+5", "stop-broker+5", "restart-redis+3", "kill-all-workers",
    "blind-monitor+10",
)  # fmt: skip
"""Kinds that a consumer group meets, with the seconds of those that last."""


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


Seen = dict[tuple[str, int, float], Life]
"""By name, process id and time of creation: ids come again in two hours."""


def sample(state: str, seen: Seen, at_s: float) -> None:
    """Add the resident memory (MB) of each process."""
    for process in processes(state):
        try:
            life = seen[name(process), process.pid, process.create_time()]
            life.append((at_s, process.memory_info().rss / 1e6))
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue


def of_a_life(life: Life) -> tuple[float, float]:
    """Medians (MB) of the second and of the last quarter of a life."""
    quarter = len(life) // 4
    return median(mb for _, mb in life[quarter : 2 * quarter]), median(mb for _, mb in life[-quarter:])


def at_one_age(lives: Sequence[Life], seconds: float) -> tuple[float, float] | None:
    """Medians (MB) at ``AGE_S`` of the lives that begin in the second and in the last quarter of the run; None where
    one of them has no life that became so old.
    """
    quarters: dict[int, list[float]] = defaultdict(list)
    for life in lives:
        began_s = life[0][0]
        aged = [mb for at_s, mb in life if AGE_S[0] <= at_s - began_s <= AGE_S[1]]
        if aged and life[-1][0] - began_s >= AGE_S[1]:
            quarters[min(3, int(4 * began_s / seconds))].append(median(aged))
    return (median(quarters[1]), median(quarters[3])) if quarters[1] and quarters[3] else None


def growth(lives: Sequence[Life], seconds: float) -> tuple[float, float] | None:
    """Memory (MB) before and after, of the longest life if that is a quarter of the run, or at one age; None: neither
    is known.
    """
    longest = max(lives, key=lambda life: life[-1][0] - life[0][0])
    if len(longest) >= 8 and longest[-1][0] - longest[0][0] > seconds / 4:
        return of_a_life(longest)
    return at_one_age(lives, seconds)


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
    """The run, then its services down; exit code 1 if a claim does not hold."""
    penstock = str(Path(sys.executable).parent / "penstock")
    state = str(folder / "state")
    ports = [name for name in ServiceSettings.model_fields if name.endswith("_port")]
    environment: Mapping[str, str] = {
        **os.environ,
        **{f"PENSTOCK_{port}".upper(): "0" for port in ports},
        "PENSTOCK_STATE": state,
        "PENSTOCK_RUNS": str(folder / "runs"),
        "PENSTOCK_READY_TIMEOUT_S": f"{READY_TIMEOUT_S:g}",
    }
    needed = options.seconds * options.rate * BYTES_PER_EVENT
    if (free := shutil.disk_usage(folder).free) < needed:
        print(f"{folder}: {free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB are needed; choose another --folder")
        return 1
    seen: Seen = defaultdict(list)
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
        write(seen, folder / "memory.csv")
        subprocess.run([penstock, "down"], env=environment, check=False, stdout=sys.stderr)
    found = [each.parent for each in (folder / "runs").glob("*/verdict.json") if not each.parent.match("*-compare")]
    if len(found) != 1:
        print(f"the run has no verdict; exit code {played.returncode}")
        list(memory(options.seconds, seen))  # what was seen until then
        return 1
    broken = [*events(options, RunDirectory(found[0])), *memory(options.seconds, seen)]
    if played.returncode:
        broken.append(f"penstock run ended with exit code {played.returncode}")
    print(f"claims that do not hold: {'; '.join(broken) or 'none'}")
    return int(bool(broken))


def events(options: argparse.Namespace, directory: RunDirectory) -> Iterator[str]:
    """Print the counts and the faults; what must not be."""
    data = RunData(directory)
    summary, twice = summary_of(data), finished_twice(data)
    balance = summary.conservation
    print(f"{summary.verdict}: {'; '.join(summary.reasons) or 'no reason against it'}")
    print(f"events: {balance.scheduled} scheduled, {balance.acknowledged} acknowledged, {balance.completed} completed, "
          f"{balance.failed} failed, {balance.dead_lettered} dead-lettered, {balance.in_flight} in flight, "
          f"{balance.lost} lost, {twice} finished twice")  # fmt: skip
    counts = {
        "lost": balance.lost, "finished twice": twice, "left over": balance.in_flight,
        "failed": balance.failed + balance.dead_lettered, "not issued": balance.scheduled - balance.acknowledged,
    }  # fmt: skip
    yield from (f"{count} {what}" for what, count in counts.items() if count)
    yield from balance.disagreements
    if summary.verdict == "INVALID":
        yield "the run is INVALID"
    planned = Counter(text.partition("@")[0] for text in faults(options.seconds, options.seed))
    injected, hit = (Counter(str(each.kind) for each in data.faults if each.hit or not hits) for hits in (False, True))
    print("faults: " + ", ".join(f"{kind} {hit[kind]} of {planned[kind]}" for kind in sorted(planned)))
    if injected != planned:
        yield f"injected faults {dict(injected)}, planned {dict(planned)}"
    yield from (f"no {kind} had an effect" for kind in planned if not hit[kind])


def write(seen: Seen, file: Path) -> None:
    """All samples, for a second look without a second run."""
    rows = [(program, pid, at_s, mb) for (program, pid, _), life in seen.items() for at_s, mb in life]
    lines = ("program,pid,at_s,mb", *(f"{program},{pid},{at_s:.0f},{mb:.1f}" for program, pid, at_s, mb in rows))
    file.write_text("\n".join(lines) + "\n")


def memory(seconds: float, seen: Seen) -> Iterator[str]:
    """Print a table of all programs; those that grew, or could not be judged."""
    lives: dict[str, list[Life]] = defaultdict(list)
    for (process, _, _), life in seen.items():
        lives[process].append(life)
    print("| program | lives | longest life, s | before, MB | after, MB | judged |\n|---|---|---|---|---|---|")
    for process, each in sorted(lives.items()):
        longest_s, found = max(life[-1][0] - life[0][0] for life in each), growth(each, seconds)
        before, after = found or (each[0][0][1], each[-1][-1][1])
        judged = "keeps " + STORES[process] if process in STORES else "yes" if found else "too short"
        print(f"| {process} | {len(each)} | {longest_s:.0f} | {before:.0f} | {after:.0f} | {judged} |")
        if judged == "yes" and after - before > (OF_A_JVM_MB if process == "kafka" else GROWTH_MB):
            yield f"{process} grew from {before:.0f} to {after:.0f} MB"
        elif judged == "too short" and process in EXPECTED and seconds >= WHOLE_S:
            yield f"{process} had no life that can be compared"
    yield from (f"{process} was never seen" for process in sorted(EXPECTED - lives.keys()))


def main() -> int:
    """Exit code 0: nothing was lost and nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep services' state and the run here")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # services are stopped
    folder = options.folder or Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(options, folder.resolve())
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
