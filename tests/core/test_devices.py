"""Devices: one thread at a time uses a GPU."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest
import torch

from noise2text.core.devices import device_guard


@pytest.mark.parametrize(("device", "together"), [("cpu", 2), ("cuda:0", 1)])
def test_one_thread_at_a_time_uses_a_gpu_and_any_number_a_cpu(
    monkeypatch: pytest.MonkeyPatch, device: str, together: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)  # there may be no GPU here
    inside, most = 0, 0
    is_first_inside, is_second_inside = threading.Event(), threading.Event()

    def use(*, waits: bool) -> None:
        nonlocal inside, most
        with device_guard(torch.device(device)), device_guard(torch.device(device)):  # one may call another
            inside += 1
            most = max(most, inside)
            if waits:
                is_first_inside.set()
                is_second_inside.wait(timeout=30 if together > 1 else 0.2)
            else:
                is_second_inside.set()
            inside -= 1

    threads = [threading.Thread(target=use, kwargs={"waits": waits}) for waits in (True, False)]
    for thread in threads:
        thread.start()
        assert is_first_inside.wait(timeout=30)
    for thread in threads:
        thread.join()
    assert most == together
