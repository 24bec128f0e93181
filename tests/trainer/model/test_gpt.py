from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hpsearch.trainer.config.shape import VOCABULARY, Shape
from hpsearch.trainer.model.gpt import GPT, Block, Dropout, dropout, loss_sum

SHAPE = Shape(width=8, depth=2, heads=2, max_length=6)


def model(**kwargs: float) -> GPT:
    made = GPT(SHAPE, **kwargs)  # type: ignore[arg-type]
    made.initialize(torch.Generator().manual_seed(0))
    return made


def test_a_token_sees_none_after_it() -> None:
    gpt, ids = model(), torch.randint(256, (1, 6), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 4] = (changed[0, 4] + 1) % 256
    before, after = gpt(ids), gpt(changed)
    assert torch.equal(before[:4], after[:4])
    assert not torch.equal(before[4], after[4]) and not torch.equal(before[5], after[5])


def test_rows_do_not_mix() -> None:
    gpt, ids = model(), torch.arange(12).view(2, 6)
    both = gpt(ids).view(2, 6, VOCABULARY)
    torch.testing.assert_close(both[1], gpt(ids[1:]))


def test_attention_is_the_formula() -> None:
    """Softmax(q k' / sqrt(size)) v with a causal mask, written out for one head at a time."""
    gpt, ids = model(), torch.arange(6)[None]
    block = gpt.blocks[0]
    assert isinstance(block, Block)
    x = (gpt.token(ids) + gpt.position.weight).flatten(0, 1)
    q, k, v = block.qkv(block.norm_1(x)).split(8, dim=-1)
    mixed = torch.empty(6, 8)
    for head in (slice(0, 4), slice(4, 8)):
        scores = q[:, head] @ k[:, head].T / math.sqrt(4)
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
        mixed[:, head] = scores.softmax(-1) @ v[:, head]
    x = x + block.out(mixed)
    x = x + block.down(nn.functional.gelu(block.up(block.norm_2(x))))
    torch.testing.assert_close(block((gpt.token(ids) + gpt.position.weight).flatten(0, 1), 6), x)


def test_the_loss_is_summed_over_tokens() -> None:
    gpt, ids = model(), torch.arange(12).view(2, 6)
    logits = gpt(ids).log_softmax(-1)
    expected = -sum(logits[place, int(token)] for place, token in enumerate(ids.flatten()))
    torch.testing.assert_close(loss_sum(gpt, ids, ids), expected)


def test_every_parameter_is_drawn_and_from_the_generator_alone() -> None:
    with torch.device("meta"):
        hollow = GPT(SHAPE)
    made = hollow.to_empty(device="cpu")
    for parameter in made.parameters():
        nn.init.constant_(parameter, math.nan)
    made.initialize(torch.Generator().manual_seed(0))
    torch.manual_seed(5)
    for (name, left), right in zip(made.named_parameters(), model().parameters(), strict=True):
        assert torch.equal(left, right), name
        assert left.dim() == 1 or left.std() > 0, name


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    drop = Dropout(0.3, torch.Generator().manual_seed(0))
    out = drop(torch.ones(1000, 401))
    assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    columns = (out.flatten()[: 4 * 100_000].view(-1, 4) == 0).float().mean(0)
    assert columns.tolist() == pytest.approx([0.3] * 4, abs=0.01), "the four decisions of a draw are alike"


def test_dropout_rests_in_evaluation_and_is_nothing_at_zero() -> None:
    drop = Dropout(0.5, torch.Generator())
    x = torch.ones(4)
    assert torch.equal(drop.eval()(x), x)
    assert isinstance(dropout(0.0, torch.Generator()), nn.Identity)


def test_dropout_passes_gradients_where_it_passes_values() -> None:
    x = torch.ones(64, requires_grad=True)
    out = Dropout(0.5, torch.Generator().manual_seed(0))(x)
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, out.detach())
