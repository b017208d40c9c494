"""The whole Transformer is torch's own: the same weights give the same scores, losses and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear

from noise2text.acceleration.packing import pack_short_rows
from noise2text.data.layouts.base import Canvas, Source
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.transformer import Transformer
from noise2text.training.next_token import NextTokenObjective

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

VOCABULARY, WIDTH, FFN, HEADS, LAYERS, BOS = 23, 32, 128, 4, 3, 1


def build() -> Transformer:
    torch.manual_seed(0)
    embedding = TokenEmbedding(VOCABULARY, WIDTH)
    shape = LayerShape(WIDTH, FFN, HEADS, dropout=0.0)
    layers = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
    return Transformer(embedding, shape, source_positions=9, target_positions=8, **layers)


class TorchTransformer(nn.Module):
    """torch's encoder-decoder between embeddings and a tied projection, as its tutorials have it."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.table = nn.Parameter(network.embedding.weight.detach().clone())
        self.indices = nn.ParameterList(
            [network.encoder.position_embedding.weight, network.position_embedding.weight]
        )
        self.body = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, FFN, dropout=0.0, batch_first=True)
        self.body.encoder.norm = self.body.decoder.norm = (
            None  # Vaswani et al. have none after the last layer
        )
        self.body.load_state_dict(with_torchs_names(dict(network.named_parameters())))

    def forward(self, tokens: Tensor, source: Source) -> Tensor:
        read, written = (
            embedding(words, self.table) * WIDTH**0.5 + positions[: words.shape[1]]
            for words, positions in zip((source.tokens, tokens), self.indices, strict=True)
        )
        ahead = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        hidden = {"src_key_padding_mask": source.padding, "memory_key_padding_mask": source.padding}
        return linear(self.body(read, written, tgt_mask=ahead, **hidden), self.table)


READS = {
    "self_attention.qkv_projection.": "self_attn.in_proj_",
    "self_attention.output_projection.": "self_attn.out_proj.",
    "self_attention_norm.": "norm1.",
    "feed_forward.0.": "linear1.",
    "feed_forward.3.": "linear2.",
}
ENCODER = READS | {"feed_forward_norm.": "norm2."}
DECODER = READS | {
    "cross_attention.output_projection.": "multihead_attn.out_proj.",
    "cross_attention_norm.": "norm2.",
    "feed_forward_norm.": "norm3.",
}


def with_torchs_names(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, whether weights or gradients, under torch's names."""
    names: dict[str, str] = {}
    for layer in range(LAYERS):
        for side, stack, parts in (("encoder", "encoder.layers", ENCODER), ("decoder", "layers", DECODER)):
            here, there = f"{stack}.{layer}.", f"{side}.layers.{layer}."
            names |= {here + part: there + theirs for part, theirs in parts.items()}
    ends = ("weight", "bias")
    theirs = {names[name] + end: ours[name + end] for name in names for end in ends}
    for layer, end in product(range(LAYERS), ends):
        of_all_layers = ours[f"key_value_projection.{end}"].unflatten(0, (2, LAYERS, WIDTH))
        keys_and_values = of_all_layers[:, layer].flatten(0, 1)
        every = torch.cat([ours[f"layers.{layer}.cross_attention.query_projection.{end}"], keys_and_values])
        theirs[f"decoder.layers.{layer}.multihead_attn.in_proj_{end}"] = every
    return theirs


def canvas() -> Canvas:
    torch.manual_seed(1)
    padding = torch.arange(7) >= torch.tensor([7, 4, 2, 6])[:, None]
    hidden = torch.arange(9) >= torch.tensor([5, 9, 1, 3])[:, None]
    tokens = torch.randint(3, VOCABULARY, (4, 7)).masked_fill(padding, 0)
    source = Source(torch.randint(3, VOCABULARY, (4, 9)).masked_fill(hidden, 0), hidden)
    return Canvas(tokens, torch.zeros_like(padding), padding, ~padding, source)


@pytest.mark.parametrize("pack_tokens", [0, 18], ids=["apart", "side by side"])
def test_logits_losses_and_gradients_are_those_of_torchs_transformer(pack_tokens: int) -> None:
    network, given = build(), canvas()
    if pack_tokens:
        pack_short_rows(network, tokens=pack_tokens)
    oracle = TorchTransformer(network).train()
    objective = NextTokenObjective(network, bos=BOS, label_smoothing=0.1).train()
    read = torch.cat([torch.full((4, 1), BOS), given.tokens[:, :-1]], dim=1)
    expected = oracle(read, given.source)
    scores = network(read, network.encode(given.source))
    torch.testing.assert_close(scores[given.scored], expected[given.scored], rtol=1e-4, atol=1e-5)

    token_loss = objective(given, None)["smoothed"]
    loss = token_loss.total() / token_loss.mask.sum()
    targets = given.tokens.masked_fill(given.padding, -100)
    theirs = cross_entropy(expected.transpose(1, 2), targets, label_smoothing=0.1, ignore_index=-100)
    torch.testing.assert_close(loss, theirs)
    ours = torch.autograd.grad(loss, list(network.parameters()))
    gradients = dict(zip(dict(network.named_parameters()), ours, strict=True))
    theirs.backward()
    body = with_torchs_names(gradients)
    for name, parameter in oracle.body.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(body[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
    positions = ("encoder.position_embedding.weight", "position_embedding.weight")
    outer = {"embedding.weight": oracle.table, **dict(zip(positions, oracle.indices, strict=True))}
    for name, parameter in outer.items():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_initial_weights_are_torchs_and_those_of_outputs_smaller_by_the_depth() -> None:
    """Queries and keys start as torch's; values and all outputs start smaller."""
    torchs = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, FFN, batch_first=True)
    less = LAYERS**-0.5
    factors: tuple[float, ...]
    for name, ours in with_torchs_names(dict(build().named_parameters())).items():
        theirs = torchs.get_parameter(name)
        if name.endswith("in_proj_weight"):
            factors = (1.0, 1.0, less * 2**0.5)  # torch starts the three squares as one matrix
        elif ours.dim() == 2:
            factors = (less,)
        else:
            assert torch.equal(ours, torch.full_like(ours, float(name.endswith("weight")))), name
            continue
        for here, there, factor in zip(
            *(x.chunk(len(factors)) for x in (ours, theirs)), factors, strict=True
        ):
            assert (here.std() / there.std()).item() == pytest.approx(factor, rel=0.1), name


def test_gradients_reach_the_first_layers_of_deep_stacks() -> None:
    """At the start; with torch's own initial weights the last layer's is 3 times the first one's."""
    torch.manual_seed(0)
    shape, layers = LayerShape(64, 4 * 64, 4, dropout=0.0), {"encoder_layers": 6, "decoder_layers": 6}
    network = Transformer(TokenEmbedding(100, 64), shape, source_positions=9, target_positions=9, **layers)
    tokens, source = torch.randint(100, (2, 32, 9))
    source_input = Source(source, torch.zeros_like(source, dtype=torch.bool))
    loss = cross_entropy(network(tokens, network.encode(source_input)).flatten(0, 1), source.flatten())
    for stack in (network.encoder.layers, network.layers):
        grads = [torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True) for layer in stack]
        norms = [nn.utils.get_total_norm(gradients) for gradients in grads]
        assert max(norms) < 1.5 * min(norms)
