"""The service under the load of locust, beside direct generation in the same run: throughput and latency.

    pip install locust aiohttp
    OMP_NUM_THREADS=1 python benchmarks/serving_locust.py MODEL INPUT [--seconds 20] [--users 64]

The users of locust, a load generator, ask `noise2text serve MODEL` for the texts of INPUT, which has one per
line. They check that the answer is what `Model.generate` returns for the same text and seed; a wrong one is
a failure.

    throughput   four slices of direct batches and of the service in turn; all users ask again at once
    latency      at random moments, the users together ask for 50 % and 90 % of the service's throughput; a
                 user waits for an answer before the next question, so that they get a little less
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from locust import FastHttpUser, task

QUESTIONS = "NOISE2TEXT_QUESTIONS"  # a file of questions and answers, for the processes of locust
RATE = "NOISE2TEXT_RATE"  # requests per second of one user; without it, as many as it can


def read_questions() -> list[dict[str, Any]]:
    """What users ask; nothing where this file is the command, not locust's."""
    path = os.environ.get(QUESTIONS)
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else []


class Asker(FastHttpUser):
    """A user who asks for one text after another."""

    questions = read_questions()

    def wait_time(self) -> float:
        """Seconds until the next question: random ones of a Poisson process, or none."""
        return random.expovariate(float(os.environ[RATE])) if RATE in os.environ else 0.0

    def on_start(self) -> None:
        """Not all users begin at the same moment."""
        time.sleep(self.wait_time())

    @task
    def ask(self) -> None:
        """Ask a random question, and check the answer."""
        question = random.choice(self.questions)
        body = {"texts": [question["text"]], "seed": question["seed"]}
        with self.client.post("/v1/generate", json=body, catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}")
            elif answer.json()["texts"] != [question["answer"]]:
                answer.failure("a wrong text")


def run_locust(
    address: str, questions: Path, *, users: int, seconds: float, rate: float | None = None
) -> dict[str, str]:
    """The row of locust's table for all requests: requests per second, failures and percentiles."""
    environment = {**os.environ, QUESTIONS: str(questions)}
    if rate is not None:
        environment[RATE] = str(rate / users)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "locust", "-f", __file__, "--headless", "--only-summary"]
        command += ["--host", address, "--users", str(users), "--spawn-rate", str(users)]
        command += ["--run-time", f"{max(1, round(seconds))}s", "--csv", f"{folder}/run", "--reset-stats"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        path = Path(folder) / "run_stats.csv"
        if not path.exists():
            sys.exit(done.stderr)
        rows = list(csv.DictReader(path.open(encoding="utf-8")))
    return next(row for row in rows if row["Name"] == "Aggregated")


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.serving import generate_directly, make_questions, serve
    from noise2text.models.folder import load

    parser = argparse.ArgumentParser(description="The service under the load of locust.")
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("--texts", type=int, default=64, help="different texts")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--users", type=int, default=64)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.users} users", flush=True)
    model = load(arguments.model, device="cpu", precision="float32")
    lines = arguments.input.read_text(encoding="utf-8").splitlines()
    questions = make_questions(model, [line for line in lines if line.strip()][: arguments.texts], [{}])
    with tempfile.TemporaryDirectory() as folder, serve(arguments.model) as (address, _):
        path = Path(folder) / "questions.json"
        path.write_text(json.dumps([asdict(each) for each in questions]), encoding="utf-8")
        measure = partial(run_locust, address, path, users=arguments.users)
        measure(seconds=3)  # warm up
        direct, served, failures, requests = [], [], 0, 0
        for _ in range(4):
            direct.append(generate_directly(model, cycle(questions), arguments.seconds / 4))
            row = measure(seconds=arguments.seconds / 4)
            served.append(float(row["Requests/s"]))
            failures, requests = failures + int(row["Failure Count"]), requests + int(row["Request Count"])
            print(f"  direct {direct[-1]:.1f}, service {served[-1]:.1f} texts/s", flush=True)
        alone, rate = statistics.mean(direct), statistics.mean(served)
        print(f"throughput: direct {alone:.1f}, service {rate:.1f} texts/s: {rate / alone:.0%}")
        for share in (0.5, 0.9):
            row = measure(seconds=arguments.seconds, rate=share * rate)
            failures, requests = failures + int(row["Failure Count"]), requests + int(row["Request Count"])
            asked = f"{float(row['Requests/s']):.1f} texts/s"
            print(f"latency at {share:.0%}, {asked}: p50 {row['50%']} ms, p99 {row['99%']} ms", flush=True)
        print(f"{requests:,} requests, {failures} wrong or lost, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
