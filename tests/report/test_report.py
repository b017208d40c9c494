"""A page needs nothing but itself, says all that it should, and is the same each time."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.report.report import SECTIONS, report
from noise2text.report.report_data import ReportConfig, find_validation_pairs

from .parsed import Parsed

QUICK = [name for name in SECTIONS if name not in ("settings", "scores", "cases", "traces")]
FEW = ReportConfig(sentences=4, device="cpu")


def test_the_page_fetches_nothing(written: str) -> None:
    parsed = Parsed(written)
    tags = {tag for tag, _ in parsed.elements}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base", "form", "use_"})
    assert parsed.values("src") == []
    assert all(href.startswith("#") for href in parsed.values("href"))
    assert not re.search(r"https?:|@import|url\((?!#)", written)
    assert not any(name.startswith("on") for _, attributes in parsed.elements for name in attributes)


def test_the_page_is_whole(written: str) -> None:
    parsed = Parsed(written)
    ids = parsed.values("id")
    assert parsed.unbalanced == []
    assert len(ids) == len(set(ids))
    assert {href.removeprefix("#") for href in parsed.values("href")} <= set(ids)
    assert len(parsed.all("figure")) == len(parsed.all("figcaption")) > 10
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in parsed.all("svg"))
    assert all(region["aria-label"] for region in parsed.all("div") if region.get("class") == "scroll")
    assert parsed.all("html") == [{"lang": "en"}]


def test_every_section_is_there(written: str) -> None:
    headings = [heading["id"] for heading in Parsed(written).all("h2")]
    assert headings == list(SECTIONS)


def test_a_figure_that_a_baseline_cannot_have_is_a_line(written: str) -> None:
    assert "Not for transformer: it is not a diffusion model." in written
    assert "Not for copy: it generates without steps." in written


def test_the_scores_are_those_of_sacrebleu(runs: dict[str, Path], written: str, dates: Path) -> None:
    import sacrebleu

    pairs = list(read_pairs(str(dates / "valid.jsonl")))[:12]
    sources, targets = [pair.src for pair in pairs], [pair.trg for pair in pairs]
    wanted = sacrebleu.corpus_chrf(sources, [targets])  # what the run `copy` writes
    row = re.search(r'<th scope="row">chrF</th>(.*?)</tr>', written)
    assert row is not None
    assert re.findall(r'<td>(?:<b class="best">)?([\d.]+)<', row[1])[-1] == f"{wanted.score:.2f}"
    assert "copied" in written


def test_the_page_opens_with_five_lines_the_best_run_first(written: str, dates: Path) -> None:
    summary = re.search(r'<ul class="summary">(.*?)</ul>', written)
    assert summary is not None
    assert written.index('id="summary"') < written.index('id="traces"') < written.index('id="scores"')
    lines = re.findall(r"<li>(.*?)</li>", summary[1])
    assert len(lines) == 5
    scores = [float(score) for score in re.findall(r"\w ([\d.]+)[,.]", lines[0].replace(".,", ","))]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert "copy 100.0\N{NO-BREAK SPACE}%" in lines[2]


def test_the_best_values_are_marked_and_only_those(written: str) -> None:
    for name, best in (("chrF", max), ("self-BLEU (DiffuSeq)", min), ("words", None)):
        row = re.search(rf'<th scope="row">{re.escape(name)}</th>(.*?)</tr>', written)
        assert row is not None
        cells = re.findall(r'<td>(<b class="best">)?([\d.]+)', row[1])
        values = [float(value) for _, value in cells]
        marked = [value for (mark, _), value in zip(cells, values, strict=True) if mark]
        differ = best is not None and len(set(values)) > 1
        assert marked == ([value for value in values if value == best(values)] if differ and best else [])


def test_single_points_and_flat_lines_are_left_out(runs: dict[str, Path], tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    shutil.copytree(runs["difformer"], flat)
    lines = [{"step": step, "loss": 1 / step, "level": 3.0} for step in (1, 2, 3)]
    lines.append({"step": 3, "valid_bleu": 7.0})
    (flat / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    others = set(SECTIONS) - {"curves"}
    report([flat], out=tmp_path / "page.html", config=FEW, without=others)
    captions = re.findall(r"<figcaption><b>(.*?) over training", (tmp_path / "page.html").read_text())
    assert captions == ["loss"]


def test_the_copies_of_the_run_that_copies_are_flagged(written: str) -> None:
    own = written[written.index("copy: worst") : written.index('id="curves"')]
    assert own.count("copy of the source") == own.count('class="case"')


def test_the_denoising_ends_in_the_text_that_was_chosen(
    runs: dict[str, Path], written: str, dates: Path
) -> None:
    from noise2text.models.folder import load

    sources = [pair.src for pair in list(read_pairs(str(dates / "valid.jsonl")))[:12]]
    made = load(runs["difformer"], device="cpu").generate(sources, trace=True)
    traces = written[written.index('id="traces"') : written.index('id="scores"')]
    shown = re.findall(r"<b>(?:<span[^>]*>([^<]*)</span>|<i[^>]*>empty</i>)</b></td>", traces)
    assert shown[0::2] == made.texts[:3]  # of the two runs with steps the first
    assert f"{made.traces[0][0].time:.2f}" in traces


@pytest.mark.long
def test_the_same_runs_give_the_same_bytes(runs: dict[str, Path], tmp_path: Path) -> None:
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        report([runs["difformer"]], out=page, config=FEW)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_hostile_and_right_to_left_texts_stay_texts(runs: dict[str, Path], tmp_path: Path) -> None:
    hostile = "</td></table><script>alert(1)</script>"
    pairs = [
        Pair(hostile, '"><img src=x onerror=alert(2)>'),
        Pair("שלום עולם", "مرحبا"),
        Pair("&amp;", "<!--"),
    ]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    out = tmp_path / "report.html"
    report([runs["copy"]], out=out, pairs=str(tmp_path / "pairs.jsonl"), without=QUICK, config=FEW)
    page = out.read_text(encoding="utf-8")
    parsed = Parsed(page)
    assert parsed.all("script") == parsed.all("img") == []
    assert parsed.unbalanced == []
    assert hostile in parsed.words["span"]
    assert '<span dir="auto" class="text">שלום עולם</span>' in page


def test_sections_can_be_left_out(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    report([runs["copy"]], out=out, without=QUICK, config=FEW)
    assert [heading["id"] for heading in Parsed(out.read_text()).all("h2")] == [
        "traces",
        "scores",
        "cases",
        "settings",
    ]


@pytest.mark.parametrize("recipe", ["difformer", "copy"])
def test_one_sentence_is_enough(runs: dict[str, Path], recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    report([runs[recipe]], out=out, config=ReportConfig(sentences=1, device="cpu"))
    assert "1 sentences" not in out.read_text()


def test_a_model_without_its_run_has_all_but_the_curves(
    runs: dict[str, Path], dates: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(
        runs["difformer"], model, ignore=shutil.ignore_patterns("*.jsonl", "run.json", "checkpoint*", "data")
    )
    out = tmp_path / "report.html"
    kept = ("curves", "scores")
    without = [name for name in SECTIONS if name not in kept]
    report([model], out=out, pairs=str(dates / "valid.jsonl"), without=without, config=FEW)
    assert f"{model} has no metrics.jsonl: give the folder of a training run." in out.read_text()
    with pytest.raises(Problem, match=r"does not record its validation pairs: give pairs with --test\.$"):
        report([model], out=out, config=FEW)


def test_mistakes_are_told_in_a_sentence_before_any_work(
    runs: dict[str, Path], dates: Path, tmp_path: Path
) -> None:
    run, out = runs["difformer"], tmp_path / "report.html"
    empty, pairs = tmp_path / "empty", str(dates / "valid.jsonl")
    empty.mkdir()
    with pytest.raises(Problem, match=r"^There is nothing to report on: give the folder of a run\.$"):
        report([], out=out)
    with pytest.raises(Problem, match=r"^There is no folder .*nowhere; check the name\.$"):
        report([tmp_path / "nowhere"], out=out)
    with pytest.raises(Problem, match=r"config.json is missing: the folder is not a complete model\.$"):
        report([run, empty], out=out, pairs=pairs)
    with pytest.raises(Problem, match=r"^A report has no section 'case'; did you mean cases\?$"):
        report([run], out=out, without=["case"])
    with pytest.raises(Problem, match=r"is a folder; --output must be a file"):
        report([run], out=tmp_path)
    with pytest.raises(Problem, match=r"^A run is given twice: give each folder once\.$"):
        report([run, run], out=out, config=FEW)
    with pytest.raises(Problem, match=r"--sentences must be at least 1, not 0\.$"):
        ReportConfig(sentences=0)
    assert not out.exists()


def test_runs_of_different_or_lost_pairs_ask_for_some(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["copy"], run)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"valid": "gone.jsonl"}))
    with pytest.raises(Problem, match=r"validation pairs of .*, gone.jsonl, do not exist here: give others"):
        report([run], out=tmp_path / "report.html")
    with pytest.raises(Problem, match=r"different validation pairs, .* and gone.jsonl: choose"):
        report([runs["copy"], run], out=tmp_path / "report.html")


def test_validation_pairs_are_found_as_training_found_them(tmp_path: Path) -> None:
    """Two files with a comma between them, or one with a comma in its name."""
    one = tmp_path / "a,b.jsonl"
    source, target = tmp_path / "x.de", tmp_path / "x.en"
    for file in (one, source, target):
        file.touch()
    for valid in (str(one), f"{source},{target}"):
        (tmp_path / "run.json").write_text(json.dumps({"valid": valid}))
        assert find_validation_pairs([tmp_path]) == valid


def test_a_page_that_cannot_be_written_leaves_the_old_one(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Problem, match="cannot be written"):
        report([runs["copy"]], out=tmp_path / "file" / "report.html", without=QUICK, config=FEW)
    assert (tmp_path / "file").read_text() == "mine"
