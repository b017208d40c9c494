"""One output line per input line, and one sentence per mistake."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import noise2text
from noise2text.commands.generate import GeneratedText
from noise2text.commands.generation_job import remove_teacher
from noise2text.models.folder import load_config, save

from .conftest import Outcome


def test_a_text_that_is_the_name_of_a_file_is_told_so(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("sunday, 7 april 1957\n")
    done = run("generate", model, source, "- a text", "--steps", 3, "--stop-early", 0)
    assert (done.code, done.out.count("\n")) == (0, 2)
    assert f"to read the file of this name, give --input {source}." in done.err


def test_generate_writes_a_line_for_each_line(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("sunday, 7 april 1957\n\n12. mai 2001\n")
    fast = ["--steps", 3, "--stop-early", 1, "--length-beam", 2, "--noise-beam", 1]
    done = run("generate", model, "--input", source, *fast)
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    assert lines[0] != ""
    to_file = run("generate", model, "--input", source, "--output", tmp_path / "out.txt", "--batch", 1, *fast)
    assert to_file.out == ""
    assert (tmp_path / "out.txt").read_text() == done.out
    from_stdin = run("generate", model, "--input", "-", *fast, stdin=source.read_bytes())
    assert from_stdin.out == done.out


def test_texts_are_given_after_the_model(run: Callable[..., Outcome], model: Path) -> None:
    texts = ["sunday, 7 april 1957", "12. mai 2001"]
    fast = ["--length-beam", 2, "--noise-beam=1"]
    piped = run("generate", model, "--input", "-", "--steps", 3, *fast, stdin="\n".join(texts).encode())
    assert piped.code == 0, piped.err
    assert run("generate", model, *texts, "--steps", 3, *fast).out == piped.out
    assert run("generate", model, "--steps", 3, texts[0], *fast, texts[1]).out == piped.out
    assert run("generate", model, "--steps", 3, *fast, stdin="\n".join(texts).encode()).out == piped.out
    both = run("generate", model, "7 april", "--input", "-")
    assert (both.code, both.err.count("\n")) == (1, 1)
    assert "texts or --input, not both" in both.err
    valueless = run("generate", model, "7 april", "--steps")
    assert "The option --steps needs a value" in valueless.err


def test_n_texts_are_on_the_line_of_their_input(run: Callable[..., Outcome]) -> None:
    texts = ["Wo ist Tom?", "Tom ist schwimmen gegangen."]
    ask = ("generate", "de-en", *texts, "--n", 4, "--steps", 2)
    lines = run(*ask).out.splitlines()
    rows = [json.loads(line) for line in run(*ask, "--json").out.splitlines()]
    assert [line.split("\t") for line in lines] == [row["alternatives"] for row in rows]
    assert 1 < max(len(row["alternatives"]) for row in rows) <= 4
    assert [row["text"] for row in rows] == [row["alternatives"][0] for row in rows]
    in_python = noise2text.load("de-en").generate(texts, n=4, steps=2)
    assert [row["alternatives"] for row in rows] == in_python.alternatives
    assert "at least 1, not 0" in run(*ask[:3], "--n", 0).err


def test_a_table_is_no_plain_text(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    table = tmp_path / "texts.csv"
    table.write_text('nr,when,what\n1,"sunday, 7 april 1957",x\n2,12. mai 2001,y\n')
    fast = ["--steps", 2, "--length-beam", 1, "--noise-beam", 1]
    plain = run("generate", model, "sunday, 7 april 1957", "12. mai 2001", *fast)
    assert run("generate", model, "--input", table, "--fields", "when", *fast).out == plain.out
    refused = run("generate", model, "--input", table, *fast)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "--fields" in refused.err
    array = tmp_path / "texts.json"
    array.write_text('["sunday, 7 april 1957",\n "12. mai 2001"]')
    assert run("generate", model, "--input", array, *fast).out == plain.out


def test_n_steps_are_n_steps(run: Callable[..., Outcome], model: Path) -> None:
    """Whatever the model's own settings leave out; on the command line as in Python."""
    import noise2text

    loaded = noise2text.load(model, device="cpu", precision="float32")
    assert loaded.generation_config.stop_early == 5
    for steps in (1, 5, 20):
        [trace] = loaded.generate(["7 april"], steps=steps, trace=True).traces
        assert len(trace) == steps
        done = run("generate", model, "7 april", "--trace", "--steps", steps, "--device", "cpu")
        assert done.out.count("t=") == steps
    assert len(loaded.generate(["7 april"], trace=True).traces[0]) == 15
    assert len(loaded.generate(["7 april"], steps=8, stop_early=2, trace=True).traces[0]) == 6


def test_generate_fills_in_a_template(run: Callable[..., Outcome], model: Path) -> None:
    arguments = ["--input", "-", "--template", "19___{2}-___", "--steps", 3, "--stop-early", 1]
    done = run("generate", model, *arguments, stdin=b"sunday, 7 april 1957\n12. mai 2001\n")
    assert done.code == 0, done.err
    assert all(re.fullmatch("19..-.+", line) for line in done.out.splitlines())


def test_a_teacher_picks_the_candidate_it_finds_likeliest(
    run: Callable[..., Outcome], model: Path, teacher: Path
) -> None:
    import noise2text
    from noise2text.models import AutoregressiveModel

    fast = ["--steps", 3, "--stop-early", 1, "--length-beam", 6, "--noise-beam", 2, "--device", "cpu"]
    ask = ["generate", model, "--input", "-", *fast]
    judge = noise2text.load(teacher, device="cpu")
    assert isinstance(judge, AutoregressiveModel)
    candidates = (
        noise2text.load(model, device="cpu")
        .generate(["7 april 1957"], steps=3, stop_early=1, length_beam=6, noise_beam=2)
        .candidates[0]
    )
    for reduction in ("mean", "sum"):
        done = run(
            *ask,
            "--select",
            "teacher",
            "--teacher",
            teacher,
            "--likelihood",
            reduction,
            stdin=b"7 april 1957\n",
        )
        assert done.code == 0, done.err
        scores = judge.likelihood(
            ["7 april 1957"] * len(candidates), candidates, per_token=reduction == "mean"
        )
        assert done.out.rstrip("\n") == candidates[scores.index(max(scores))]


def test_without_copies_a_text_is_never_its_source_again(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    """What is given leaves one token open: of ten noises one may hit the source, and nine need not."""
    ask = ["generate", model, "--input", "-", "--device", "cpu", "--steps", 1, "--json"]
    ask += ["--template", "1957-04-0___{1}", "--noise-beam", 10, "--set", "eta=1"]
    done = run(*ask, "--no-copies", stdin=b"1957-04-07\n1957-04-01\n")
    assert done.code == 0, done.err
    for line, source in zip(done.out.splitlines(), ("1957-04-07", "1957-04-01"), strict=True):
        made = json.loads(line)
        others = [each["text"] for each in made["candidates"] if each["text"] != source]
        assert made["text"] != source or not others


def test_what_cannot_be_read_back_is_not_written(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.txt.gz"
    done = run("generate", model, "--input", "-", "--output", output, stdin=b"7 april 1957\n")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "leave out the .gz" in done.err
    assert not output.exists()


def test_no_standard_input_is_one_sentence(model: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m noise2text generate {shlex.quote(str(model))} --input - <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "noise2text: There is no standard input to read; name a file instead of -.\n"


def test_an_answer_is_one_line_and_keeps_its_other_characters() -> None:
    line = GeneratedText("a\r\nb\u2028c\x85d\n", [], [], [])
    assert line.as_text() == "a b\u2028c\x85d"
    assert json.loads(line.as_json())["text"] == line.text


def test_a_score_that_is_not_finite_is_null_in_json() -> None:
    """A length that the model cannot predict from so long a source has the probability 0."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    line = GeneratedText("b", ["a", "b"], [-math.inf, -0.5], []).as_json()
    scores = [each["score"] for each in json.loads(line, parse_constant=refuse)["candidates"]]
    assert scores == [None, -0.5]


def test_the_choice_of_a_teacher_is_not_an_override_of_the_model() -> None:
    given = {"select": "teacher", "steps": "3"}
    assert remove_teacher(given, Path("teacher"), likelihood="mean") == {"steps": "3"}
    assert given == {"select": "teacher", "steps": "3"}
    assert remove_teacher({"select": "score"}, None, likelihood="mean") == {"select": "score"}


def test_int8_is_for_the_model_and_not_for_its_teacher(
    run: Callable[..., Outcome], model: Path, teacher: Path
) -> None:
    few = ["--steps", 2, "--device", "cpu", "--precision", "int8"]
    judged = ["--select", "teacher", "--teacher", teacher]
    done = run("generate", model, "--input", "-", *few, *judged, stdin=b"7 april 1957\n")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 1
    refused = run("generate", teacher, "--input", "-", "--device", "cpu", "--precision", "int8", stdin=b"x\n")
    assert refused.code == 1
    assert "int8 is for diffusion models on a CPU" in refused.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--select", "teacher"], "--teacher DIR"),
        (["--teacher", "T"], "--select teacher"),
        (["--likelihood", "sum"], "--select teacher"),
        (["--select", "mbr", "--teacher", "T"], "--select teacher"),
        (["--select", "teacher", "--teacher", "M"], "is not autoregressive"),
        (["--select", "teacher", "--teacher", "nowhere"], "nowhere"),
        (["--select", "teacher", "--teacher", "T", "--likelihood", "median"], "median"),
    ],
)
def test_a_mistake_about_the_teacher_is_one_sentence(
    run: Callable[..., Outcome], model: Path, teacher: Path, arguments: list[str], named: str
) -> None:
    places = {"M": str(model), "T": str(teacher)}
    done = run("generate", model, "--input", "-", *[places.get(each, each) for each in arguments])
    assert done.code == 1
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_autoregressive_model_generates_by_its_own_options(
    run: Callable[..., Outcome], teacher: Path
) -> None:
    ask = ["generate", teacher, "--input", "-", "--device", "cpu"]
    searched = run(*ask, "--beam", 2, "--length-penalty", 0.6, stdin=b"7 april\n")
    assert searched.code == 0, searched.err
    drawn = [
        run(*ask, "--samples", 1, "--temperature", 2, "--seed", seed, stdin=b"7 april\n") for seed in (1, 2)
    ]
    assert drawn[0].out != drawn[1].out
    refused = run(*ask, "--noise-beam", 3, stdin=b"7 april\n")
    assert refused.code == 1
    assert "no setting 'noise_beam'" in refused.err
    assert "length_penalty" in run("inspect", teacher).out


def test_trace_prints_the_text_at_every_step(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    done = run(
        *("generate", model, "--input", "-", "--trace", "--steps", 4, "--stop-early", 1, "--output", out),
        stdin=b"7 april\n",
    )
    assert done.out.count("t=") == 3
    assert done.out.splitlines()[-1].endswith(out.read_text().strip())


def test_a_trace_does_not_mix_with_json(run: Callable[..., Outcome], model: Path) -> None:
    ask = ["generate", model, "--input", "-", "--json", "--steps", 4, "--stop-early", 1]
    plain, traced = (json.loads(run(*ask, *more, stdin=b"7 april\n").out) for more in ([], ["--trace"]))
    trace = traced.pop("trace")
    assert traced == plain
    assert len(trace) == 3
    assert trace[-1]["text"] == plain["text"]


def test_an_empty_input_gives_an_empty_output_and_says_so(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "empty.txt", tmp_path / "out.txt"
    source.touch()
    done = run("generate", model, "--input", source, "--output", output)
    assert (done.code, output.read_text()) == (0, "")
    assert "The input is empty" in done.err


def test_an_input_that_is_too_long_is_cut_and_said(run: Callable[..., Outcome], model: Path) -> None:
    done = run("generate", model, "--input", "-", "--steps", 2, stdin=b"1" * 200 + b"\n")
    assert done.code == 0
    assert "1 of 1 inputs had more than 48 tokens" in done.err


def test_a_model_folder_can_be_moved(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    import noise2text

    recipe, settings = load_config(model)
    save(tmp_path / "moved", noise2text.load(model, device="cpu"), recipe=recipe.name, config=settings)
    arguments = ["--input", "-", "--steps", 2]
    here = run("generate", model, *arguments, stdin=b"7 april\n").out
    assert run("generate", tmp_path / "moved", *arguments, stdin=b"7 april\n").out == here


def test_the_input_is_never_written_over(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("7 april 1957\n")
    link = tmp_path / "same.txt"
    link.symlink_to(texts)
    target = tmp_path / "target.txt"
    target.write_text("1957-04-07\n")
    given: list[tuple[object, Path]] = [(texts, texts), (texts, link)]  # and as one of two parallel files
    given += [(f"{texts},{target}", output) for output in (texts, link, target)]
    for input, output in given:
        outcome = run("generate", model, "--input", input, "--output", output)
        assert outcome.code == 1
        assert "is also the input" in outcome.err
    assert texts.read_text() == "7 april 1957\n"


def test_an_older_output_is_replaced_by_the_first_text_and_not_by_a_mistake(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "made.txt"
    output.write_text("of yesterday\n" * 9)
    ask = ("generate", model, "--input", "-", "--output", output, "--steps", 2)
    mistaken = run(*ask, "--prefix", "%", stdin=b"7 april\n")
    assert mistaken.code == 1
    assert output.read_text() == "of yesterday\n" * 9
    done = run(*ask, stdin=b"7 april\n12. mai\n")
    assert done.code == 0, done.err
    assert len(output.read_text().splitlines()) == 2
    assert "yesterday" not in output.read_text()
    assert run(*ask, stdin=b"").code == 0
    assert output.read_text() == ""


def test_candidates_are_written_as_evaluate_reads_them(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    texts, made = tmp_path / "texts.txt", tmp_path / "made.jsonl"
    texts.write_text("7 april 1957\n12. mai 2001\n\n")
    few = ("--noise-beam", 3, "--length-beam", 1, "--steps", 2)
    plain = run("generate", model, "--input", texts, *few).out.splitlines()
    assert run("generate", model, "--input", texts, "--output", made, "--json", *few).code == 0
    rows = [json.loads(line) for line in made.read_text().splitlines()]
    assert [row["text"] for row in rows] == plain
    assert [len(row["candidates"]) for row in rows] == [3, 3, 0]
    assert all(row["text"] in [each["text"] for each in row["candidates"]] for row in rows[:2])
    scored = run("evaluate", "--hyp", made, "--ref", texts)
    assert scored.code == 0, scored.err


def test_fewer_different_texts_than_asked_for_are_counted(
    run: Callable[..., Outcome], model: Path, teacher: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("7 april 1957\n\n12. mai 2001\n")
    two = ("--noise-beam", 2, "--length-beam", 1, "--steps", 2, "--floor", 1000)
    diffusion = "try a larger --floor or --length-beam or --noise-beam."
    one = run("generate", model, "7 april 1957", "--n", 3, *two)
    counts = [len(line.split("\t")) for line in one.out.splitlines()]
    texts_found = "is 1 text" if counts == [1] else "are 2 different texts"
    assert one.err == f"noise2text: There {texts_found}, not 3; {diffusion}\n"
    several = run("generate", model, "--input", texts, "--n", 3, *two)
    fewest = min(len(line.split("\t")) for line in several.out.splitlines() if line)
    notice = f"2 of 3 inputs have fewer than 3 different texts; one has {fewest}; {diffusion}\n"
    assert several.err.endswith(f"noise2text: {notice}")
    beam = run("generate", teacher, "7 april 1957", "--n", 3, "--beam", 2, "--floor", 1000)
    assert beam.err.endswith("try a larger --floor or --beam or --samples.\n")
    for enough in (1, 2):
        given = ("--n", enough, "--beam", 8, "--floor", 1000)
        assert "different texts" not in run("generate", teacher, "7 april 1957", *given).err


def test_too_little_memory_is_one_sentence(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("7 april 1957\n")
    done = run("generate", model, "--input", source, "--steps", 10**15)
    assert done.code == 1
    assert done.err.startswith("noise2text: There is not enough memory")
    assert "Traceback" not in done.err


def test_too_few_steps_name_both_settings(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("7 april 1957\n")
    done = run("generate", model, "--input", source, "--steps", 3, "--stop-early", 5)
    assert done.code == 1
    assert "stop_early must be at least 0 and below steps, not 5 of 3" in done.err


@pytest.mark.parametrize(
    ("word", "setting"),
    [
        ("num-beams", "length_beam"),
        ("noise-scale", "sampling_noise_factor"),
        ("num-inference-steps", "steps"),
        ("sampling-steps", "steps"),
        ("num-candidates", "candidates are noises, times lengths"),
    ],
)
def test_a_word_of_another_program_leads_to_the_setting_that_it_stands_for(
    run: Callable[..., Outcome], model: Path, word: str, setting: str
) -> None:
    refused = run("generate", model, "7 april 1957", f"--{word}", 3)
    assert refused.code == 1
    assert re.search(rf"\b{re.escape(setting)}\b", refused.err)
    assert "did you mean" not in refused.err
