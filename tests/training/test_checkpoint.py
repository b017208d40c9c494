"""A checkpoint is whole on the disk before it takes its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.training import checkpoint


def test_all_files_are_on_the_disk_before_a_checkpoint_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, folder = tmp_path / "checkpoint.draft", tmp_path / "checkpoint-00000002"
    (draft / "training").mkdir(parents=True)  # what several processes write
    for name in ("model.safetensors", "training.json", "training/shard-1.safetensors"):
        (draft / name).write_text(name)
    (tmp_path / "checkpoint-00000001").mkdir()
    flushed = set()

    def flush(file: Path) -> None:
        assert not folder.exists()
        flushed.add(str(file.relative_to(draft)))

    monkeypatch.setattr(checkpoint, "flush_to_disk", flush)
    checkpoint._publish(draft, folder)
    assert flushed == {"model.safetensors", "training.json", "training/shard-1.safetensors"}
    assert checkpoint.find_checkpoint(tmp_path) == folder
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000002"]
