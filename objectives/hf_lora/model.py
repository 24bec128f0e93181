"""A model of transformers with adapters of peft, ready to be trained; its tokenizer.

What is new in a model is trained and kept with the adapters: a head for the classes, and whatever else its
files have no weights for.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...trainer.config.rules import did_you_mean
from ...trainer.errors import ConfigError
from .files import longest_row, too_long

if TYPE_CHECKING:
    from .config import Config

CLASSES = {  # of transformers
    "causal_lm": "AutoModelForCausalLM",
    "seq2seq_lm": "AutoModelForSeq2SeqLM",
    "sequence_classification": "AutoModelForSequenceClassification",
}
PEFT_TASKS = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM", "sequence_classification": "SEQ_CLS"}
HEADS = ("classifier", "score")  # that peft trains and keeps as a whole for SEQ_CLS
ADAPTABLE = ("Linear", "Conv1D", "Embedding")
LONGEST = 400  # letters of what a library says


def load_tokenizer(folder: Path) -> Any:
    """A model's tokenizer; one that pads nothing pads with its ending token. Raises `ConfigError`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a trial has the threads that it has
    import transformers

    transformers.utils.logging.set_verbosity_error()  # what matters of it is said by errors of ours
    transformers.utils.logging.disable_progress_bar()
    with _told(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def load_model(
    config: Config,
    folder: Path,
    tokenizer: Any,
    classes: tuple[str, ...],
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Any, list[str]]:
    """The model of a folder, and the modules that it has no weights for. Draws these by torch's generator.

    Its weights are of `dtype`. Raises `ConfigError` where it is not one for the task.
    """
    import transformers

    more: dict[str, Any] = {}
    if config.task == "sequence_classification":
        if tokenizer.pad_token_id is None:
            told = "has neither a padding nor an ending token, and batches of whole texts need one"
            raise ConfigError([f"model: its tokenizer {told}"])
        names = dict(enumerate(classes))
        more = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    if config.load_in_4bit:
        more |= {"quantization_config": _four_bits(device), "device_map": {"": device}}
    with _told(folder):
        about = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        _check_task(config, about)
        model, info = getattr(transformers, CLASSES[config.task]).from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # a head for other classes: `_new_modules` looks at the rest
            **more,
        )
    new = _new_modules(config, model, info, len(classes))
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ConfigError(
            [f"model: its tokenizer has {len(tokenizer)} tokens, but its embedding {rows} rows"]
        )
    for longest in (longest_row(about.to_dict()), _places(model)):
        if longest is not None and config.max_length > longest:
            raise ConfigError([too_long(config, longest)])
    model.config.pad_token_id = tokenizer.pad_token_id
    return model if config.load_in_4bit else model.to(device), new


def with_adapters(config: Config, model: Any, new: list[str]) -> Any:
    """The model with adapters drawn by torch's generator, and the modules that train as a whole."""
    import peft

    linears = {type(module).__name__ for module in model.modules()}
    targets = config.targets
    if isinstance(targets, list):
        _check_targets(model, targets)
    if config.load_in_4bit:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    about = peft.LoraConfig(
        task_type=PEFT_TASKS[config.task],
        r=config.lora_r,
        lora_alpha=config.strength,
        lora_dropout=config.lora_dropout,
        target_modules=targets,
        modules_to_save=new or None,
        use_rslora=config.use_rslora,
        use_dora=config.use_dora,
        fan_in_fan_out="Conv1D" in linears,  # GPT-2 keeps the weights of its linears transposed
    )
    with _quiet():
        try:
            adapted = peft.get_peft_model(model, about)
        except ValueError as error:
            first = str(error).strip().splitlines()[0]
            raise ConfigError([f"target_modules: found {config.target_modules!r}: {first}"]) from error
        if config.gradient_checkpointing:
            try:
                model.activation_checkpointing_enable({"use_reentrant": False})
            except ValueError as error:
                raise ConfigError([f"gradient_checkpointing: {error}"]) from error
    return adapted


def trained_tensors(model: Any) -> dict[str, Tensor]:
    """What a run changes, in 32 bits, by its names in the model."""
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in found.values():
        parameter.data = parameter.data.float()
    return found


def blocks_of(model: Any) -> list[Any]:
    """The layers of a model that compute one after another: the entries of its outermost lists."""
    lists = {
        name: module for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)
    }
    outer = [
        module for name, module in lists.items() if not any(name.startswith(f"{other}.") for other in lists)
    ]
    return [block for blocks in outer for block in blocks]


def _check_task(config: Config, about: Any) -> None:
    """Raise `ConfigError` where transformers has no such model for the task."""
    import transformers

    def has(task: str) -> bool:
        return type(about) in getattr(transformers, CLASSES[task])._model_mapping

    masked = type(about) in transformers.AutoModelForMaskedLM._model_mapping
    one_way = not masked or about.is_decoder or has("seq2seq_lm")
    if not has(config.task) or (config.task == "causal_lm" and not one_way):
        others = [
            task for task in CLASSES if task != config.task and has(task) and (one_way or task != "causal_lm")
        ]
        told = f"it is one for {' and '.join(others)}" if others else "hf_lora trains none of its kind"
        raise ConfigError([f"task: found {config.task}, but the model is a {about.model_type}: {told}"])


def _new_modules(config: Config, model: Any, info: Any, classes: int) -> list[str]:
    """The modules without weights in the model's files, but for those that peft knows by itself."""
    mismatched = {entry[0] for entry in info["mismatched_keys"]}
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if wrong := sorted(name for name in mismatched if shapes[name][0] != classes):
        raise ConfigError(
            [f"model: the weights of {wrong[0]} have another shape than {config.model}'s config says"]
        )
    lacking = sorted({*info["missing_keys"], *mismatched})
    if lacking and config.task != "sequence_classification":
        told = f"has no weights for {lacking[0]}" + (
            f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        )
        raise ConfigError([f"model: {config.model} {told}: it was not trained for {config.task}"])
    modules = {name.rpartition(".")[0] for name in lacking}
    return sorted(path for path in modules if not any(part.endswith(HEADS) for part in path.split(".")))


def _check_targets(model: Any, targets: list[str]) -> None:
    """Raise `ConfigError` where no layer has such a name."""
    known = {name: module for name, module in model.named_modules() if type(module).__name__ in ADAPTABLE}
    lasts = list(dict.fromkeys(name.rpartition(".")[2] for name in known))
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in known):
            near = did_you_mean(target, lasts)
            raise ConfigError(
                [f"target_modules: the model has no layer {target!r}{near or ';'} it has {', '.join(lasts)}"]
            )


def _places(model: Any) -> int | None:
    """The tokens that RoBERTa and its like have places for: the first ones of their table are not used."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    return None


def _four_bits(device: torch.device) -> Any:
    """QLoRA (Dettmers et al. 2023): the frozen weights as 4-bit normal floats, computed with in bf16."""
    import transformers

    if device.type != "cuda":
        raise ConfigError([f"load_in_4bit: needs a CUDA device; this one is {device.type}"])
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Raise what transformers says of a model's files as our own error."""
    try:
        with _quiet():
            yield
    except ConfigError:
        raise
    except Exception as error:  # of json, safetensors, tokenizers: each its own
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            raise
        told = " ".join(str(error).split())[:LONGEST]  # what matters may stand in any line
        raise ConfigError([f"model: {folder} cannot be loaded: {type(error).__name__}: {told}"]) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the one warning that peft gives of itself: that transformers will rename what it asks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        yield
