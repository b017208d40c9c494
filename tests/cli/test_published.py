"""Published results are printed as a table or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from .conftest import Outcome


def test_published_is_a_table_or_json(run: Callable[..., Outcome]) -> None:
    done = run("published", "--task", "qqp")
    assert done.code == 0
    assert "| 30.52 |" in done.out
    assert "mean of sentence BLEU" in done.out
    rows = json.loads(run("published", "--json").out)
    assert {"paper", "table", "task", "system", "setting", "scores", "note", "second_hand"} == set(rows[0])
    wrong = run("published", "--task", "qpp")
    assert (wrong.code, wrong.out) == (1, "")
    assert "iwslt14-de-en" in wrong.err
