"""ANI is the mean cosine over all pairs of different words."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from noise2text.core.errors import Problem
from noise2text.diffusion.anisotropy import anisotropy


def double_sum(embeddings: Tensor) -> float:
    cosines = cosine_similarity(embeddings[:, None], embeddings[None], dim=2)
    vocab = len(embeddings)
    return sum(cosines[i, j].item() for i in range(vocab) for j in range(vocab) if i != j) / (
        vocab * (vocab - 1)
    )


@pytest.mark.parametrize("shift", [0.0, 0.5, 100.0])
def test_equals_the_double_sum(shift: float) -> None:
    embeddings = torch.randn(60, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + shift
    assert anisotropy(embeddings) == pytest.approx(double_sum(embeddings), abs=1e-12)


def test_equal_words_score_one() -> None:
    word = torch.randn(16, generator=torch.Generator().manual_seed(1))
    assert anisotropy(word.expand(1000, -1)) == pytest.approx(1, abs=1e-12)


def test_lengths_of_the_vectors_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(50, 8, dtype=torch.float64, generator=generator)
    stretched = embeddings * torch.rand(50, 1, dtype=torch.float64, generator=generator).exp()
    assert anisotropy(stretched) == pytest.approx(anisotropy(embeddings), abs=1e-12)


def test_known_tables() -> None:
    assert anisotropy(torch.eye(9)) == pytest.approx(0, abs=1e-15)
    assert anisotropy(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])) == pytest.approx(-1)


def test_random_words_score_about_zero() -> None:
    assert abs(anisotropy(torch.randn(10_000, 128, generator=torch.Generator().manual_seed(3)))) < 1e-3


def test_a_row_of_zeros_is_at_right_angles_to_all_words() -> None:
    embeddings = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) + 1
    embeddings[0] = 0
    assert anisotropy(embeddings) == pytest.approx(double_sum(embeddings), abs=1e-12)


def test_takes_the_weight_of_a_layer() -> None:
    assert isinstance(anisotropy(torch.nn.Embedding(5, 3).weight.bfloat16()), float)


@pytest.mark.parametrize("shape", [(1, 4), (4,), (2, 3, 4)])
def test_refuses_what_is_no_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(Problem, match="two or more words"):
        anisotropy(torch.ones(shape))
