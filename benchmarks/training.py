"""Training steps of a published size on this machine: plain, as CUDA graphs, and with fused kernels, too.

    python benchmarks/training.py [--device cuda] [--recipe difformer] [--preset qqp] [--length 16]
                                  [--rows 2048] [--kernels 20]

The vocabulary is 30,522 made-up words, the texts are random: the time does not depend on them. A joint canvas
(DiffuSeq) has its preset's number of positions whatever the length. `--kernels` prints below each line what
the device did in a step: the time of each kind of kernel, and of the so many longest.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from noise2text.commands.bench_training import measure_accelerations
from noise2text.commands.profile_kernels import classify_kernel, sum_by_kind
from noise2text.core.command_line import parse_assignments
from noise2text.core.config import apply_overrides
from noise2text.core.devices import find_device
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe

VOCABULARY = 30_522


def make_tokenizer(words: int) -> Tokenizer:
    """A tokenizer of so many made-up words, special tokens among them."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names = [*specials, *(f"w{number}" for number in range(words - len(specials)))]
    inner = Inner(WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    inner.add_special_tokens(specials)
    return Tokenizer(inner)


def format_kernels(kernels: Mapping[str, float], limit: int) -> list[str]:
    """Lines to print: the kinds, and the longest kernels with their kinds."""
    kinds = ", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in sum_by_kind(kernels).items())
    longest = list(kernels.items())[:limit]
    return [
        kinds,
        *(f"  {1000 * seconds:7.2f} ms  {classify_kernel(name):<11} {name}" for name, seconds in longest),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--recipe", default="difformer")
    parser.add_argument("--preset", default="qqp")
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--kernels", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    recipe, tokenizer = find_recipe(arguments.recipe), make_tokenizer(arguments.vocabulary)
    wanted = {"tokenizer": "bpe"} | parse_assignments(arguments.set)
    config = recipe.resolve(
        apply_overrides(recipe.preset(arguments.preset), wanted, origin="benchmarks/training.py"), tokenizer
    )
    plain = 0.0
    for one in measure_accelerations(
        recipe,
        config,
        tokenizer,
        device=find_device(arguments.device),
        length=arguments.length,
        rows=arguments.rows,
        steps=arguments.steps,
        kernels=arguments.kernels > 0,
    ):
        plain = plain or one.step_seconds
        print(one.format_line(plain), flush=True)
        if one.kernels:
            print(*format_kernels(one.kernels, arguments.kernels), sep="\n", flush=True)


if __name__ == "__main__":
    main()
