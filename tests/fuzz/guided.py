"""One target under atheris, whose mutations are guided by the coverage of this package's code.

    python tests/fuzz/guided.py yaml -max_total_time=60

Options after the target are libFuzzer's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(
    include=["noise2text.core", "noise2text.data", "noise2text.models", "noise2text.generation", "yaml"]
):
    from noise2text.core.errors import Problem
    from tests.fuzz.targets import TARGETS, require_readable


def main() -> None:
    """Fuzz the target that the first argument names."""
    target = TARGETS[sys.argv.pop(1)]
    corpus = Path(tempfile.mkdtemp(prefix="noise2text-guided-"))
    for number, seed in enumerate(target.seeds()):
        (corpus / str(number)).write_bytes(seed)

    def try_one(data: bytes) -> None:
        try:
            target.run(data)
        except Problem as problem:
            require_readable(problem)

    atheris.Setup([*sys.argv, f"-artifact_prefix={corpus}/", str(corpus)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
