"""Memory that was freed is used again, without asking the system for fresh pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
import torch
from noise2text.core.host_memory import keep_freed_memory

torch.set_num_threads(1)
print(keep_freed_memory())
for repetition in range(8):
    if repetition == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.ones(1 << 22) for _ in range(8)]  # 16 MiB, which is 4,096 pages, each
    tensors.clear()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(**environment: str) -> tuple[bool, int]:
    """Whether freed memory is kept, and how many pages the last 32 of 64 tensors needed."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_large_tensors_are_made_in_memory_that_was_freed() -> None:
    kept, faults = count_faults()
    assert kept
    assert faults < 4096, "the pages of a single tensor"


def test_what_the_environment_says_about_memory_stays() -> None:
    kept, _ = count_faults(MALLOC_ARENA_MAX="2")
    assert not kept
