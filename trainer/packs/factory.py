"""Makes the pack that a run trains in."""

from __future__ import annotations

from ..config.models import LoraConfig, TrainConfig
from ..model.build import on_device
from ..optim.optimizers import may_be_recorded
from ..ranks import ALONE, Ranks
from .lora_pack import LoraPack
from .pack import Pack
from .whole_model import WholeModel


def new_pack(config: TrainConfig, ranks: Ranks = ALONE) -> Pack:
    """A pack for runs like this one. Raises `CheckpointError` or `ConfigError` if its base is invalid."""
    config = on_device(config)
    # The sharded packs are imported only when needed: their libraries take seconds to load.
    if isinstance(config, LoraConfig) and config.finetuning_type == "lora":
        if ranks.strategy == "fsdp":
            from .sharded import ShardedBase

            return ShardedBase(config, ranks)
        if ranks.strategy == "deepspeed":
            from .zero_packs import ZeroAdapters

            return ZeroAdapters(config, ranks)
        return LoraPack(config, ranks)
    if ranks.strategy == "fsdp":
        from .sharded import ShardedBody, ShardedModel

        return ShardedModel(config, ranks) if config.trains_all else ShardedBody(config, ranks)
    if ranks.strategy == "deepspeed":
        from .zero_packs import ZeroModel

        return ZeroModel(config, ranks)
    return WholeModel(config, ranks)


def pack_key(config: TrainConfig) -> tuple[object, ...] | None:
    """Runs with equal keys can train in one pack; None for a run that trains alone."""
    if not isinstance(config, LoraConfig) or config.finetuning_type != "lora" or config.torch_compile:
        return None
    dropping = config.lora_dropout > 0  # dropout costs a third more, for all runs of a pack
    smoothing = config.label_smoothing_factor > 0  # runs with and without it compute different things
    recorded = config.device == "cuda" and may_be_recorded(config.optimizer)  # only a whole pack can be
    return (
        *(config.base, config.targets, config.use_dora, config.max_length, config.rows_per_pass),
        *(config.device, dropping, smoothing, recorded),
        *(config.precision, config.deterministic, config.gradient_checkpointing),
    )
