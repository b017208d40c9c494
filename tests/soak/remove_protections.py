"""Remove one protection after another, and show that its test notices.

    python tests/soak/remove_protections.py [WORDS]    # those with the words in their names; all: 20 minutes

Each protection is a line of the package; `protections/` lists them by subject. In a copy of the source it is
replaced by one that does not protect, and its test must then fail. A test that still passes protects nothing,
and the exit code is 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_SECONDS = 600  # for one test
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": ""}  # which is faster


@dataclass(frozen=True)
class Protection:
    """A line that protects, what it is without the protection, and the test that must then fail."""

    name: str
    file: str  # in src/noise2text
    line: str
    without: str
    test: str  # in tests

    def is_noticed(self, copy: Path) -> str:
        """The test that fails in the copy without the protection; empty if none does."""
        file = copy / "src" / "noise2text" / self.file
        whole = file.read_text()
        file.write_text(whole.replace(self.line, self.without))
        try:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
            path, _, function = self.test.partition("::")
            chosen = ["-k", function] if function else []
            done = subprocess.run(
                [*command, str(copy / "tests" / path), *chosen],
                cwd=copy,
                env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(copy / "src")},
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return ""  # a test that hangs says nothing
        finally:
            file.write_text(whole)
        found = re.search(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
        return found[1] if found and done.returncode == 1 else ""


PROTECTIONS = [
    Protection(**entry)
    for file in sorted((Path(__file__).parent / "protections").glob("*.toml"))
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["protection"]
]
"""The protections and their tests."""


def main() -> None:
    """Remove each protection in a copy, and print the test that noticed it."""
    words = " ".join(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        unnoticed = 0
        for each in PROTECTIONS:
            if words in each.name:
                test = each.is_noticed(copy)
                unnoticed += not test
                print(f"{each.name}: {test or 'NOT NOTICED'}", flush=True)
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
