"""A process that is forked after a generation generates the same texts."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, torch
import noise2text
torch.set_num_threads(2)
model = noise2text.load("de-en", device="cpu", precision="float32")
texts = ["Ich habe zwei Brüder.", "Wo ist der Bahnhof?"]
before = model.generate(texts).texts
child = os.fork()
if child == 0:
    signal.alarm(120)  # a process that waits for threads that it does not have would wait for ever
    os._exit(0 if model.generate(texts).texts == before else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_generates_the_same_texts() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
