"""BERTScore of a tiny random model equals cosines computed here; missing parts are named."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.metrics.evaluate import evaluate, find_metrics
from noise2text.metrics.model_based import bert_score, comet, comet_without_reference

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "on", "a", "mat"]
TEXTS = ["the cat sat", "the dog sat on a mat", "a", "mat"]
REFERENCES = [["the cat sat"], ["a dog sat on the mat", "the cat"], ["the", "a"], ["the cat sat on a mat"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers whose words are whole."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("models") / "minibert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=1.0,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def states(folder: Path, text: str) -> torch.Tensor:
    """The normalised last states of a text's words and of the marks at both ends."""
    from transformers import BertModel

    ids = [WORDS.index(word) for word in ("[CLS]", *text.split(), "[SEP]")]
    model = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(torch.tensor([ids])).last_hidden_state[0]
    return torch.nn.functional.normalize(found, dim=-1)


def f1(folder: Path, text: str, reference: str) -> float:
    cosines = states(folder, text) @ states(folder, reference).T
    # The marks are not counted, but words may be matched with them.
    precision, recall = cosines[1:-1].max(dim=1).values.mean(), cosines[:, 1:-1].max(dim=0).values.mean()
    return float(2 * precision * recall / (precision + recall))


def test_bertscore_is_f1_of_greedy_matches_with_the_best_reference(folder: Path) -> None:
    metric = bert_score(folder)
    found = metric.statistics(TEXTS, REFERENCES)
    for row, text, own in zip(found.rows, TEXTS, REFERENCES, strict=True):
        assert row[0] == pytest.approx(100 * max(f1(folder, text, one) for one in own), abs=1e-3)
    assert found.rows[0, 0] == pytest.approx(100, abs=1e-3)


def test_a_text_or_reference_without_words_scores_nothing(folder: Path) -> None:
    references = [["the"], ["cat", ""], ["", "the cat"], ["שלום"]]
    rows = bert_score(folder).statistics(["", " ", "the cat", "👍🏽"], references).rows
    assert rows[:, 0].tolist()[:2] == [0, 0]
    assert rows[2, 0] == pytest.approx(100, abs=1e-3)
    assert rows[3, 0] > 0
    assert bert_score(folder)([""], [["a", "the"]]).score == 0


def test_bertscore_is_named_after_its_model_and_says_its_layer(folder: Path) -> None:
    (metric,) = find_metrics(f"bertscore={folder}")
    score = metric(TEXTS, REFERENCES)
    assert score.name == "BERTScore(minibert)"
    for part in ("model:minibert", "layer:2", "idf:no", "rescaled:no", "nrefs:var", "bert-score:"):
        assert part in score.signature, part
    result = evaluate(TEXTS, REFERENCES, metrics=[metric], n_resamples=50)
    assert result["BERTScore(minibert)"]["interval"]["low"] < score.score


def test_a_model_that_the_package_knows_is_read_at_its_tuned_layer(folder: Path, tmp_path: Path) -> None:
    from bert_score.utils import model2layers

    from noise2text.metrics.model_based import _layer

    assert _layer(tmp_path / "roberta-large", {"num_hidden_layers": 24}) == model2layers["roberta-large"]
    known = tmp_path / "microsoft--deberta-xlarge-mnli"
    assert _layer(known, {"num_hidden_layers": 48}) == model2layers["microsoft/deberta-xlarge-mnli"]
    assert _layer(folder, {"num_hidden_layers": 2}) == 2


def test_a_folder_without_a_model_is_named_and_nothing_is_downloaded(tmp_path: Path) -> None:
    for name in ("bert-base-uncased", str(tmp_path)):
        with pytest.raises(Problem, match=r"holds no config\.json"):
            bert_score(Path(name))
    broken = tmp_path / "broken"
    broken.mkdir()
    for odd in ("[1]", '{"max_position_embeddings": null}'):
        (broken / "config.json").write_text(odd)
        with pytest.raises(Problem, match=r"config\.json is of none"):
            bert_score(broken)
    (broken / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 2}')
    with pytest.raises(Problem, match="broken cannot be loaded for BERTScore"):
        bert_score(broken)(["a"], [["a"]])


def test_a_model_with_fewer_layers_than_its_name_promises_is_refused(folder: Path, tmp_path: Path) -> None:
    renamed = shutil.copytree(folder, tmp_path / "roberta-large")
    with pytest.raises(Problem, match="roberta-large cannot be loaded for BERTScore"):
        bert_score(renamed)(["a"], [["a"]])


def test_a_path_that_the_package_takes_for_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    renamed = shutil.copytree(folder, tmp_path / "bert5")
    with pytest.raises(Problem, match="bert5 another name"):
        bert_score(renamed)(["a"], [["a"]])


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bert_score.utils", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[bertscore\]'"):
        bert_score(folder)(["a"], [["a"]])


@pytest.mark.parametrize("make", [comet, comet_without_reference])
def test_what_comet_misses_is_named(make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    metrics = {comet: "comet", comet_without_reference: "comet-qe"}
    name = metrics[make]  # type: ignore[index]
    with pytest.raises(Problem, match=r"there is no file .*model\.ckpt"):
        find_metrics(f"{name}={tmp_path}")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").write_bytes(b"")
    (metric,) = find_metrics(f"{name}={tmp_path}")
    assert metric.label.startswith("COMET")
    with pytest.raises(Problem, match=r"give them with --src"):
        metric(["a"], [["a"]])
    with pytest.raises(Problem, match="unbabel-comet"):
        metric(["a"], [["a"]], ["a"])
