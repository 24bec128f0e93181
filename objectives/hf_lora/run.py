"""Training adapters of a Hugging Face model: hpsearch's loop around the computation of transformers.

| promise | kept by |
|---|---|
| the same seed, the same curve, on a CPU bit for bit | all random draws depend on (seed, step) alone |
| each epoch has every row once, in another order | a permutation by (seed, epoch) |
| a step is the same in one pass or in several | losses are summed, then divided by the labels of the step |
| losses are comparable between trials | all are means over the labels of the same validation rows |
| the same losses with several processes | whole passes are dealt out, then rows; only dropout differs |
| no process waits forever for another | all have equally many passes; one without rows learns nothing |
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...trainer.checkpoint import Tensors
from ...trainer.errors import ConfigError
from ...trainer.memory import reset_peak_memory
from ...trainer.model.build import on_device
from ...trainer.optim.numerics import HALF_DTYPES, Numerics
from ...trainer.optim.optimizers import new_optimizer
from ...trainer.ranks import ALONE, UNSHARDED, Ranks
from ...trainer.runs.base import BaseRun, perplexity
from ...trainer.seeds import seed_of
from .config import Config
from .examples import IGNORED, Example, collate, label_count, load_examples, unlearned
from .files import fingerprint, folder_of, problems_of_files
from .model import blocks_of, load_model, load_tokenizer, trained_tensors, with_adapters

if TYPE_CHECKING:
    from ...trainer.packs.zero import Zero


class HfRun(BaseRun):
    """The state of one training of adapters."""

    config: Config

    def __init__(self, config: Config, ranks: Ranks = ALONE) -> None:
        problems = problems_of_files(config)
        if ranks.count > 1:
            problems += config.sharing_problems(ranks.strategy)
        if problems:
            raise ConfigError(problems)
        config = on_device(config)
        device = torch.device(config.device)
        self.numerics = Numerics.of(config, device)
        with ranks.after_the_first():  # the first process downloads or writes the model
            folder, self.base_sha256 = base_of(config)
        self.tokenizer = load_tokenizer(folder)
        self.examples = load_examples(config, self.tokenizer, self.base_sha256)
        self.held = spread(self.examples.validation, config.eval_samples)
        if config.num_train_epochs is not None and config.samples_per_epoch is None:
            config = dataclasses.replace(config, samples_per_epoch=len(self.examples.train))
        torch.manual_seed(seed_of("start", config.seed))  # draws the adapters, and a new head
        # Autocast uses frozen weights in 16 bits anyway, so on a GPU they are stored that way.
        half = HALF_DTYPES.get(self.numerics.precision) if device.type == "cuda" else None
        frozen = half or torch.float32
        sharded = ranks.strategy in ("fsdp", "deepspeed")  # these move the weights to the devices themselves
        first = torch.device("cpu") if sharded else device
        model, new = load_model(config, folder, self.tokenizer, self.examples.classes, first, frozen)
        model.config.use_cache = False  # a cache is only useful for generation
        self.model = with_adapters(config, model, new)
        trained = trained_tensors(self.model)
        self.zero: Zero | None = None
        if ranks.strategy == "fsdp":
            from ...trainer.packs.sharded import mesh_of, share_out

            share_out(self.model, blocks_of(model), mesh_of(device, ranks), whole=trained.values())
        elif ranks.strategy == "deepspeed":
            from ...trainer.packs.zero import Zero

            self.zero = Zero(config, ranks, self.numerics, self.model, trained)
            trained = self.zero.trained
        optimizer = self.zero or new_optimizer(config, trained, dict)
        loss_scale, sharding = self.numerics.new_loss_scale(), self.zero or UNSHARDED
        super().__init__(config, device, trained, optimizer, loss_scale, ranks, sharding)
        self._orders: dict[int, list[int]] = {}
        reset_peak_memory(device)

    def train(self) -> None:
        """Make one optimizer step. In fp16 it is skipped if the gradients are not finite."""
        began = time.perf_counter()
        config, rows = self.config, self._rows_of(self.step)
        passes = [rows[at : at + config.batch_size] for at in range(0, len(rows), config.batch_size)]
        batches = list(self._own(passes))
        learned = torch.tensor(sum(label_count(batch, causal=self._causal) for _, batch in batches))
        self.ranks.sum([learned])
        total = max(1, int(learned))
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        with self.numerics.settings():
            for number, (seed, batch) in enumerate(batches, 1):
                torch.manual_seed(seed)
                loss = self._loss(self._logits(batch), batch["labels"], config.label_smoothing_factor) / total
                if not loss.requires_grad:  # T5's `shared`, for example, is not used by the loss
                    targets = f"target_modules: found {config.target_modules!r}"
                    raise ConfigError([f"{targets}, but the loss depends on none of these layers"])
                if self.zero is None:
                    torch.autograd.backward(loss * scale)
                else:
                    self.zero.backward(loss, last=number == len(batches))
                self.loss_total += loss.detach()
            gradients = {} if self.zero else {name: _gradient(t) for name, t in self.trained.items()}
            self.ranks.sum(gradients.values())
            if self.loss_scale is None or self.loss_scale.unscale(gradients):
                self.grad_norm.copy_(self.optimizer.step(gradients, self.rate_of(self.step)))
        self.step += 1
        self.loss_steps += 1
        self.loss_tokens += sum(len(row.ids) for row in rows)
        self.train_seconds += time.perf_counter() - began

    def _own(self, passes: list[list[Example]]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """The batches of a step that this process computes, each with the seed of its dropout."""
        for number, share in self.ranks.passes(len(passes), self.config.batch_size):
            rows, purpose = passes[number], "dropout"
            if share is not None:
                mine = slice(share.first, share.first + share.rows)
                rows = rows[mine] or [unlearned(rows[0])]
                purpose = f"dropout of rank {self.ranks.rank}"
            seed = seed_of(purpose, self.config.seed, self.step * len(passes) + number)
            yield seed, self._batch(rows)

    @torch.inference_mode()
    def evaluate(self) -> tuple[float, dict[str, float]]:
        """The mean validation loss in nats; perplexity, or accuracy."""
        self.model.eval()
        losses, right, count = [], 0, 0
        rows = self.config.batch_size
        with self.numerics.settings():
            for at in range(0, len(self.held), rows * self.ranks.count):
                mine = at + rows * self.ranks.rank
                batch = self._batch(self.held[mine : mine + rows] or [unlearned(self.held[0])])
                logits = self._logits(batch)
                losses.append(self._loss(logits, batch["labels"]).item())
                count += label_count(batch, causal=self._causal)
                right += int(logits.argmax(-1).eq(batch["labels"][:, 0]).sum()) if self._classifies else 0
        sums = torch.tensor([math.fsum(losses), count, right], dtype=torch.float64)
        self.ranks.sum([sums])
        loss, learned, right_ones = sums.tolist()
        value = loss / max(1.0, learned)
        if self._classifies:
            return value, {"accuracy": right_ones / learned}
        return value, {"perplexity": perplexity(value)}

    def load_weights(self, weights: Tensors) -> None:
        super().load_weights(weights)
        if self.zero:
            self.zero.adopt()

    @property
    def origin(self) -> dict[str, Any]:
        hashes = {"corpus_sha256": self.examples.sha256, "base_sha256": self.base_sha256}
        return {**hashes, "classes": list(self.examples.classes)}

    @property
    def _causal(self) -> bool:
        return self.config.task == "causal_lm"

    @property
    def _classifies(self) -> bool:
        return self.config.task == "sequence_classification"

    def _rows_of(self, step: int) -> list[Example]:
        """The rows of a step; every epoch is a permutation of all rows."""
        rows, count = self.config.rows_per_step, len(self.examples.train)
        places = (divmod(place, count) for place in range(step * rows, (step + 1) * rows))
        return [self.examples.train[self._order(epoch)[place]] for epoch, place in places]

    def _order(self, epoch: int) -> list[int]:
        """The permutation of an epoch. The last two are kept, because a step may span two epochs."""
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(seed_of("epoch", self.config.seed, epoch))
            order: list[int] = torch.randperm(len(self.examples.train), generator=generator).tolist()
            before = {epoch - 1: self._orders[epoch - 1]} if epoch - 1 in self._orders else {}
            self._orders = before | {epoch: order}
        return self._orders[epoch]

    def _batch(self, rows: list[Example]) -> dict[str, Tensor]:
        pad = self.tokenizer.pad_token_id or 0  # padding is masked, so any token will do
        batch = collate(rows, pad, causal=self._causal, classify=self._classifies)
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def _logits(self, batch: dict[str, Tensor]) -> Tensor:
        """[rows, tokens, vocabulary], or [rows, classes] for a classification."""
        # A seq2seq model derives its decoder's input from the labels; its own loss is not used.
        given = {name: batch[name] for name in batch if name != "labels" or self.config.task == "seq2seq_lm"}
        with nullcontext() if self.zero else self.numerics.autocast():
            logits: Tensor = (self.zero or self.model)(**given).logits
        return logits

    def _loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The cross-entropy in nats, in 32 bits, summed over all learned labels."""
        if self._causal:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(
            logits.flatten(0, -2).float(),
            labels.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=smoothing,
        )


def _gradient(tensor: Tensor) -> Tensor:
    """The gradient of a tensor; zero if the step did not use it."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def base_of(config: Config) -> tuple[Any, str]:
    """The folder of a run's model, and its fingerprint."""
    folder = folder_of(config)
    if folder is None:
        from .base import shipped_model

        return shipped_model()
    return folder, fingerprint(folder)


def spread(rows: list[Example], count: int | None) -> list[Example]:
    """`count` of the rows, evenly spread; all of them if there are no more."""
    if count is None or count >= len(rows):
        return rows
    return [rows[place * len(rows) // count] for place in range(count)]
