"""Autoregressive networks: step by step is the same as all at once, and no token depends on later ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.autoregressive import AutoregressiveNetwork, shift_right
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.recurrent import GRU, BidirectionalEncoder
from noise2text.nn.transformer import CausalLayer, Transformer, sinusoidal_positions

VOCABULARY, LENGTH = 11, 7


def transformer() -> AutoregressiveNetwork:
    torch.manual_seed(0)
    shape, layers = LayerShape(16, 32, 2, dropout=0.1), {"encoder_layers": 2, "decoder_layers": 2}
    network = Transformer(
        TokenEmbedding(VOCABULARY, 16), shape, source_positions=9, target_positions=LENGTH, **layers
    )
    return _with_large_weights(network)


def gru() -> AutoregressiveNetwork:
    torch.manual_seed(0)
    return _with_large_weights(GRU(TokenEmbedding(VOCABULARY, 16), model_dim=12, layers=2, dropout=0.1))


def _with_large_weights(network: AutoregressiveNetwork) -> AutoregressiveNetwork:
    """Weights large enough that every part of the past matters."""
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)
    return network.eval()


NETWORKS = pytest.mark.parametrize("make", [transformer, gru])
Make = Callable[[], AutoregressiveNetwork]


def source(lengths: tuple[int, ...] = (5, 3), *, width: int = 5) -> Source:
    torch.manual_seed(1)
    tokens = torch.randint(1, VOCABULARY, (len(lengths), 9))[:, :width]
    padding = torch.arange(width) >= torch.tensor(lengths)[:, None]
    return Source(tokens.masked_fill(padding, 0), padding)


def stepwise(
    network: AutoregressiveNetwork, tokens: Tensor, given: Source, *, cache_length: int = LENGTH
) -> Tensor:
    """The scores (B, K, L, V) of hypotheses (B, K, L), one token after the other."""
    encoded = network.encode(given)
    cache = network.empty_cache(encoded, tokens.shape[1], length=LENGTH)
    scores = [
        network.step(tokens[:, :, place], torch.tensor([place]), cache, encoded, cache_length=cache_length)
        for place in range(tokens.shape[2])
    ]
    return torch.stack(scores, dim=2)


@NETWORKS
@torch.no_grad()
def test_cached_and_uncached_scores_agree(make: Make) -> None:
    network, given = make(), source()
    tokens = torch.randint(0, VOCABULARY, (2, 3, LENGTH))
    whole = torch.stack([network(tokens[:, k], network.encode(given)) for k in range(3)], dim=1)
    torch.testing.assert_close(stepwise(network, tokens, given), whole, rtol=1e-4, atol=1e-5)
    short = tokens[:, :, :4]
    torch.testing.assert_close(
        stepwise(network, short, given, cache_length=4), whole[:, :, :4], rtol=1e-4, atol=1e-5
    )


@NETWORKS
@torch.no_grad()
def test_a_reordered_hypothesis_has_its_parents_past(make: Make) -> None:
    network, given = make(), source()
    tokens = torch.randint(0, VOCABULARY, (2, 3, LENGTH))
    parents = torch.tensor([[2, 0, 0], [1, 1, 2]])
    encoded = network.encode(given)
    cache = network.empty_cache(encoded, 3, length=LENGTH)
    for place in range(LENGTH):
        scores = network.step(tokens[:, :, place], torch.tensor([place]), cache, encoded, cache_length=LENGTH)
        if place in (1, 3):
            network.reorder(cache, parents)
            rows = parents[..., None].expand(-1, -1, place + 1)
            tokens[:, :, : place + 1] = tokens[:, :, : place + 1].gather(1, rows)
    for k in range(3):
        torch.testing.assert_close(scores[:, k], network(tokens[:, k], encoded)[:, -1], rtol=1e-4, atol=1e-5)


@NETWORKS
@torch.no_grad()
def test_logits_depend_on_all_earlier_tokens_and_on_no_later_one(make: Make) -> None:
    network, given = make(), source()
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH))
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    encoded = network.encode(given)
    before, after = network(tokens, encoded), network(changed, encoded)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert ((before - after)[:, 3:].abs().amax(-1) > 1e-6).all()


@NETWORKS
@torch.no_grad()
def test_padding_of_the_source_changes_nothing(make: Make) -> None:
    network = make()
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH))
    tight, wide = (network(tokens, network.encode(source(width=width))) for width in (5, 9))
    torch.testing.assert_close(tight, wide, rtol=1e-4, atol=1e-5)
    alone = network(tokens[1:], network.encode(Source(source().tokens[1:, :3], source().padding[1:, :3])))
    torch.testing.assert_close(tight[1:], alone, rtol=1e-4, atol=1e-5)


@NETWORKS
def test_every_parameter_gets_a_gradient(make: Make) -> None:
    network = make().train()
    network(torch.randint(0, VOCABULARY, (2, LENGTH)), network.encode(source())).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_neighboring_positions_differ_and_are_as_large_as_embeddings() -> None:
    torch.manual_seed(0)
    network = Transformer(
        TokenEmbedding(50, 64),
        LayerShape(64, 32, 2, dropout=0.0),
        encoder_layers=1,
        decoder_layers=1,
        source_positions=40,
        target_positions=20,
    )
    assert torch.equal(network.position_embedding.weight, sinusoidal_positions(20, 64))
    assert torch.equal(network.encoder.position_embedding.weight, sinusoidal_positions(40, 64))
    place, rate = 7, 3
    expected = [f(place / 10_000 ** (2 * rate / 64)) for f in (math.sin, math.cos)]
    assert network.position_embedding.weight[place, [rate, 32 + rate]].tolist() == pytest.approx(expected)
    size = network.position_embedding.weight.square().mean() / network.embedding.vectors.square().mean()
    assert 0.4 < size < 0.6


def test_the_decoder_reads_the_target_shifted_right() -> None:
    assert shift_right(torch.tensor([[5, 6, 3], [7, 3, 0]]), 2).tolist() == [[2, 5, 6], [2, 7, 3]]


@torch.no_grad()
def test_the_decoders_layer_is_torchs() -> None:
    torch.manual_seed(0)
    layer = CausalLayer(LayerShape(16, 32, 2, dropout=0.0)).eval()
    theirs = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    keys = nn.Linear(16, 32)
    names = {
        "self_attn.in_proj_weight": layer.self_attention.qkv_projection.weight,
        "self_attn.in_proj_bias": layer.self_attention.qkv_projection.bias,
        "self_attn.out_proj.weight": layer.self_attention.output_projection.weight,
        "self_attn.out_proj.bias": layer.self_attention.output_projection.bias,
        "multihead_attn.in_proj_weight": torch.cat(
            [layer.cross_attention.query_projection.weight, keys.weight]
        ),
        "multihead_attn.in_proj_bias": torch.cat([layer.cross_attention.query_projection.bias, keys.bias]),
        "multihead_attn.out_proj.weight": layer.cross_attention.output_projection.weight,
        "multihead_attn.out_proj.bias": layer.cross_attention.output_projection.bias,
    }
    own = layer.state_dict()
    for here, there in {"feed_forward.0": "linear1", "feed_forward.3": "linear2"}.items():
        names |= {f"{there}.{part}": own[f"{here}.{part}"] for part in ("weight", "bias")}
    theirs.load_state_dict(theirs.state_dict() | names)
    x, states = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    ahead = nn.Transformer.generate_square_subsequent_mask(5)
    past = torch.ones(5, 5, dtype=torch.bool).tril()
    both = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in keys(states).chunk(2, dim=-1))
    ours = layer(x, past, *both, torch.ones(2, 1, 1, 4, dtype=torch.bool))
    torch.testing.assert_close(ours, theirs(x, states, tgt_mask=ahead), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_encoder_is_torchs_bidirectional_gru_over_packed_rows() -> None:
    torch.manual_seed(0)
    encoder = BidirectionalEncoder(6, 8, layers=2, dropout=0.0)
    theirs = nn.GRU(6, 4, num_layers=2, bidirectional=True, batch_first=True)
    for layer in range(2):
        for module, ending in (
            (encoder.forward_layers[layer], ""),
            (encoder.backward_layers[layer], "_reverse"),
        ):
            for name, value in module.named_parameters():
                getattr(theirs, f"{name[:-1]}{layer}{ending}").copy_(value)
    x, lengths = torch.randn(3, 5, 6), torch.tensor([5, 2, 4])
    padding = torch.arange(5) >= lengths[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(encoder(x, padding)[~padding], expected[~padding])
