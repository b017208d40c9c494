"""An evaluation says the same in every format, and its signatures survive each of them."""

from __future__ import annotations

import csv
import io
import re

from noise2text.metrics.evaluate import evaluate, evaluate_diversity
from noise2text.metrics.score_table import ScoreRow, collect_score_rows, to_csv, to_latex, to_text

TEXTS = ["the cat sat on the mat", "a dog barks"]
REFERENCES = [["the cat sat on a mat"], ["the dog barks", "a dog barked"]]
RESULT = evaluate(TEXTS, REFERENCES, ["die katze", "der hund"], n_resamples=50)
RESULT["diversity"] = evaluate_diversity([["a b", "a c"], ["d", "e"]], n_resamples=50)
RESULT["against"] = {
    "file": "other.txt",
    "tests": [{"metric": "BLEU", "difference": -1.5, "p": 0.03, "signature": "tok:13a|bs:50"}],
}


def test_every_number_has_a_line_with_its_signature() -> None:
    found = {line.name: line for line in collect_score_rows(RESULT)}
    assert found["BLEU"].signature.startswith(RESULT["bleu"]["signature"] + "|interval:95%|percentile|bs:50")
    assert float(found["BLEU"].low) <= float(found["BLEU"].value) <= float(found["BLEU"].high)
    assert found["self-BLEU"].value == f"{RESULT['diversity']['self_bleu']['score']:.2f}"
    assert found["BLEU, difference"].value == "-1.50"
    assert found["BLEU, p"].value == "0.0300"
    assert all(line.signature for line in found.values() if line.name != "sentences")


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(collect_score_rows(RESULT)))))
    again = [ScoreRow(row["metric"], row["score"], row["signature"], row["low"], row["high"]) for row in rows]
    assert again == collect_score_rows(RESULT)


def test_text_is_aligned_and_has_the_intervals() -> None:
    text = to_text(collect_score_rows(RESULT)).splitlines()
    starts = {line.index(" nrefs:") for line in text if " nrefs:" in line and "by the" not in line}
    assert len(starts) == 1
    assert re.search(r"^BLEU +\d+\.\d\d  \[\d+\.\d\d, \d+\.\d\d\]", text[0])
    plain = to_text(collect_score_rows(evaluate(TEXTS, REFERENCES)))
    assert "[" not in plain


def test_signatures_that_do_not_fit_stand_below_once_each() -> None:
    found = collect_score_rows(RESULT)
    narrow = to_text(found, width=80).splitlines()
    scores, notes = narrow[: len(found)], narrow[len(found) + 1 :]
    assert max(map(len, scores)) <= 80
    signatures = dict(note.split(" ", 1) for note in notes)
    assert len(set(signatures.values())) == len(notes)
    for line, row in zip(scores, found, strict=True):
        assert line.startswith(row.name)
        assert not row.signature or signatures[line.split()[-1]] == row.signature
    assert to_text(found, width=1_000) == to_text(found)


def test_latex_is_a_table_of_booktabs_with_nothing_unescaped() -> None:
    text = to_latex(
        [ScoreRow("a_b & 50%", "1.00", "x:{1}|y~#$^\\", "0.50", "1.50"), ScoreRow("plain", "2", "")]
    )
    first, *rest = text.splitlines()
    assert first == r"\begin{tabular}{lrcl}"
    assert [rest[0], rest[2], rest[5], rest[6]] == [
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert rest[3] == (
        r"a\_b \& 50\% & 1.00 & [0.50, 1.50] & \texttt{x:\{1\}\textbar{}y\textasciitilde{}"
        r"\#\$\textasciicircum{}\textbackslash{}} \\"
    )
    assert rest[4] == r"plain & 2 &  & \\"
    whole = to_latex(collect_score_rows(RESULT))
    for row in whole.splitlines()[4:-2]:
        assert len(re.findall(r"(?<!\\)&", row)) == 3
        assert row.count("{") == row.count("}")


def test_latex_without_intervals_has_three_columns() -> None:
    text = to_latex(collect_score_rows(evaluate(TEXTS, REFERENCES)))
    assert text.startswith("\\begin{tabular}{lrl}")
    assert "interval" not in text
