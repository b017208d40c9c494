"""Attack training, every parser and the service at once until the time is over, and print the figures.

    python tests/soak/soak.py --minutes 20      # `make soak`, on two cores

Training is attacked all the time; beside it, mutated input goes to the parsers for half of the time, and then
the service is attacked. Anything that is not as promised (docs/reliability.md) ends the soak with an error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.fuzz import Figures, attack, share_cases
from tests.fuzz.targets import TARGETS, remove_files
from tests.soak.service import attack_service
from tests.soak.training import attack_training


def attack_parsers(*, seconds: float, seed: int) -> Counter[str]:
    """Mutated input to every parser in turn until the time is over; a fault is an error."""
    figures, end, number = Figures(), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for name, cases in share_cases(2_000, list(TARGETS)).items():
            attack(figures, name, seed=seed * 100_000 + number, cases=cases)
        number += 1
        assert not figures.faults, figures.faults[0]
    remove_files()
    return Counter({"mutated inputs": figures.cases.total(), "of them refused": figures.problems.total()})


def attack_all(folder: Path, *, seconds: float, seed: int) -> tuple[Counter[str], list[float]]:
    """The figures of all attacks, and the memory of the service in MiB at each tenth of its attack."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as beside:
        parsers = beside.submit(attack_parsers, seconds=0.45 * seconds, seed=seed)
        service = beside.submit(attack_service, folder, seconds=0.45 * seconds, seed=seed)
        figures = attack_training(folder, seconds=seconds, seed=seed)
        served, memory = service.result()
        return figures + parsers.result() + served, memory


def main() -> None:
    """Parse the options, attack, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures, memory = attack_all(Path(folder), seconds=60 * options.minutes, seed=options.seed)
    for name, count in figures.items():
        print(f"{count:9,}  {name}")
    print(f"memory of the service at each tenth: {', '.join(f'{value:.0f}' for value in memory)} MiB")


if __name__ == "__main__":
    main()
