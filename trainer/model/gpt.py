"""A byte-level GPT in one file.

    ids [rows, time] -> token + position -> depth x block -> norm -> head -> logits [rows * time, 256]
    block:  x + out(attention(qkv(norm x)))  then  x + down(gelu(up(norm x)))

| choice | why |
|---|---|
| a token is a byte | no tokenizer to ship, any text works, the loss is in nats per byte |
| learned positions, LayerNorm, erf-GELU | a fifth faster on a CPU than RoPE, RMSNorm and tanh-GELU |
| no biases | no worse at this size, and every trained parameter is a matrix or a gain |
| activations stay [rows * time, width] | every linear is one matrix product; only attention needs four axes |

The pre-norm block and the scaled initialisation of the projections back into the residual stream are GPT-2's
(Radford et al. 2019, section 2.3).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config.shape import VOCABULARY, Shape
from ..ranks import RowShare


class Dropout(nn.Module):
    """Inverted dropout with its own generator, so that other random draws do not change a run.

    `p` is rounded to 1/65536.
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p = p
        self.generator = generator
        self.share: RowShare | None = None  # the rows of the pass in x, if other processes compute the others
        self.drawn: Tensor | None = None  # a mask that was drawn in advance

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * (self._mask(x) if self.drawn is None else self.drawn.to(x.dtype))

    def draw(self, x: Tensor) -> None:
        """Draw the mask of the next `forward` in advance, for an x of this shape."""
        self.drawn = self._mask(x)

    def _mask(self, x: Tensor) -> Tensor:
        kept = random_bits(x[None], [self.generator], self.share)[0] >= round(self.p * 65536) - 32768
        return kept.to(x.dtype).mul_(1 / (1 - self.p))


def random_bits(x: Tensor, generators: Sequence[torch.Generator], share: RowShare | None) -> Tensor:
    """int16 of the shape of x [K, ...]: 16 bits for each decision of a dropout, drawn by K generators.

    Four decisions for each draw: twice as fast as `F.dropout` on a CPU. `share` are the rows of the pass in
    x, if other processes compute the others.
    """
    size = math.prod(x.shape[1:])
    if share is not None:
        size = size // share.rows * share.whole
    draws = torch.empty(len(generators), (size + 3) // 4, dtype=torch.int64, device=x.device)
    for row, generator in zip(draws, generators, strict=True):
        row.random_(-(2**63), None, generator=generator)  # all 64 bits; `random_()` draws only 63
    drawn = draws.view(torch.int16)[:, :size]
    if share is not None:
        drawn = share.of(drawn.view(share.whole, -1))
    return drawn.view(x.shape)


def dropout(p: float, generator: torch.Generator) -> nn.Module:
    """`Dropout`, or the identity if `p` is 0."""
    return Dropout(p, generator) if p else nn.Identity()


class Linear(nn.Linear):
    """`nn.Linear` without initial weights: `GPT.initialize` draws them, or they come from a base."""

    def reset_parameters(self) -> None: ...


class Embedding(nn.Embedding):
    """`nn.Embedding` without initial weights. To draw on `meta`, torch would load its compiler: a second."""

    def reset_parameters(self) -> None: ...


class Block(nn.Module):
    """Attention and a feed-forward network, each added to the stream x [rows * time, width]."""

    def __init__(self, shape: Shape, drop: Callable[[], nn.Module]) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.qkv = Linear(width, 3 * width, bias=False)
        self.out = Linear(width, width, bias=False)
        self.norm_2 = nn.LayerNorm(width, bias=False)
        self.up = Linear(width, 4 * width, bias=False)
        self.down = Linear(4 * width, width, bias=False)
        self.drop_1, self.drop_2 = drop(), drop()

    def forward(self, x: Tensor, time: int) -> Tensor:
        heads, size = self.heads, x.shape[-1] // self.heads
        qkv = self.qkv(self.norm_1(x)).view(-1, time, 3, heads, size)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()  # each [rows, heads, time, size]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.drop_1(self.out(mixed))
        x = x + self.drop_2(self.down(F.gelu(self.up(self.norm_2(x)))))
        return x


def checkpointed(
    block: Callable[[Tensor, int], Tensor], x: Tensor, time: int, drawing: Sequence[torch.Generator]
) -> Tensor:
    """Compute `block(x, time)`, keep only x for the gradient, and compute it again in the backward pass.

    Chen et al. 2016, "Training deep nets with sublinear memory cost". `drawing` are the generators of its
    dropout, which draw the same again then.
    """
    # Imported here because it loads torch's compiler.
    from torch.utils.checkpoint import checkpoint

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _same_draws(drawing, [generator.get_state() for generator in drawing])

    output: Tensor = checkpoint(
        block, x, time, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
    )
    return output


@contextmanager
def _same_draws(drawing: Sequence[torch.Generator], states: Sequence[Tensor]) -> Iterator[None]:
    now = [generator.get_state() for generator in drawing]
    for generator, state in zip(drawing, states, strict=True):
        generator.set_state(state)
    try:
        yield
    finally:
        for generator, state in zip(drawing, now, strict=True):
            generator.set_state(state)


class GPT(nn.Module):
    """The model. `generator` draws its dropout; if `dropout_p` is 0 it is not used."""

    def __init__(
        self, shape: Shape, *, dropout_p: float = 0.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.shape = shape
        self.generator = generator or torch.Generator()
        self.drawing: Sequence[torch.Generator] | None = None  # the generators used in blocks computed twice
        self.train_block: Callable[[nn.Module, Tensor, int], Tensor] = Block.__call__  # or a compiled version

        def drop() -> nn.Module:
            return dropout(dropout_p, self.generator)

        self.token = Embedding(VOCABULARY, shape.width)
        self.position = Embedding(shape.max_length, shape.width)
        self.drop = drop()
        self.blocks = nn.ModuleList(Block(shape, drop) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.head = Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """ids int64 [rows, time], time <= max_length -> logits [rows * time, 256]."""
        time = ids.shape[1]
        x = self.drop(self.token(ids) + self.position.weight[:time]).flatten(0, 1)
        training = torch.is_grad_enabled()
        for block in self.blocks:
            compute = functools.partial(self.train_block, block) if training else block
            again = self.drawing is not None and training
            x = checkpointed(compute, x, time, self.drawing or ()) if again else compute(x, time)
        logits: Tensor = self.head(self.norm(x))
        return logits

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weights.

        | parameter | value |
        |---|---|
        | embeddings | normal, deviation 0.02 |
        | linears | normal, deviation 0.5 / sqrt(inputs): 0.04 at a width of 128 |
        | `out`, `down`: back into the residual stream | the same / sqrt(2 * depth) |
        | norms | 1 |
        """
        for name, parameter in self.named_parameters():
            if name.startswith(("token.", "position.")):
                deviation = 0.02
            elif name.endswith(("out.weight", "down.weight")):
                deviation = 0.5 / math.sqrt(parameter.shape[1] * 2 * self.shape.depth)
            elif parameter.dim() == 2:
                deviation = 0.5 / math.sqrt(parameter.shape[1])
            else:
                parameter.fill_(1.0)
                continue
            parameter.normal_(0.0, deviation, generator=generator)


def loss_sum(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of `targets`, in nats, summed over all tokens: a scalar."""
    return F.cross_entropy(model(inputs), targets.flatten(), reduction="sum")
