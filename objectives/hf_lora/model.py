"""Loads a model of transformers with adapters of peft, ready to train, and its tokenizer.

New modules are trained and saved with the adapters: a head for the classes, and any other module whose
weights are not in the model's files.
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
HEADS = ("classifier", "score")  # peft trains and saves these as a whole for SEQ_CLS
ADAPTABLE = ("Linear", "Conv1D", "Embedding")
AS_IT_IS = {"local_files_only": True, "trust_remote_code": False}  # no download, no code of a model
MAX_QUOTED_LETTERS = 400  # letters quoted of a library's message


def load_tokenizer(folder: Path) -> Any:
    """A model's tokenizer. Without a padding token it pads with the ending token. Raises `ConfigError`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a trial has its own number of threads
    import transformers

    transformers.utils.logging.set_verbosity_error()  # our own errors say what matters
    transformers.utils.logging.disable_progress_bar()
    with _loading_errors(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **AS_IT_IS)
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
    """Load the model of a folder. Also returns its modules without weights, which torch's generator draws.

    The weights have the type `dtype`. Raises `ConfigError` if the model does not fit the task.
    """
    import transformers

    more: dict[str, Any] = {}
    if config.task == "sequence_classification":
        if tokenizer.pad_token_id is None:
            raise ConfigError(["model: its tokenizer has neither a padding nor an ending token, needs one"])
        names = dict(enumerate(classes))
        more = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    if config.load_in_4bit:
        more |= {"quantization_config": _four_bits(device), "device_map": {"": device}}
    with _loading_errors(folder):
        about = transformers.AutoConfig.from_pretrained(folder, **AS_IT_IS)
        _check_task(config, about)
        model, info = getattr(transformers, CLASSES[config.task]).from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # a head for other classes; `_new_modules` checks the rest
            **AS_IT_IS,
            **more,
        )
    new = _new_modules(config, model, info, len(classes))
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ConfigError(
            [f"model: its tokenizer has {len(tokenizer)} tokens, but its embedding has {rows} rows"]
        )
    for longest in (longest_row(about.to_dict()), _places(model)):
        if longest is not None and config.max_length > longest:
            raise ConfigError([too_long(config, longest)])
    model.config.pad_token_id = tokenizer.pad_token_id
    return model if config.load_in_4bit else model.to(device), new


def with_adapters(config: Config, model: Any, new: list[str]) -> Any:
    """The model with adapters, drawn by torch's generator, and with the modules that train as a whole."""
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
        fan_in_fan_out="Conv1D" in linears,  # GPT-2 stores the weights of its linears transposed
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
    """The tensors that a run trains, converted to 32 bits, by their names in the model."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in trained.values():
        parameter.data = parameter.data.float()
    return trained


def blocks_of(model: Any) -> list[Any]:
    """The consecutive layers of a model: the entries of its outermost module lists."""
    lists = {name: part for name, part in model.named_modules() if isinstance(part, torch.nn.ModuleList)}
    inner = {name for name in lists for other in lists if name.startswith(f"{other}.")}
    return [block for name, blocks in lists.items() if name not in inner for block in blocks]


def _check_task(config: Config, about: Any) -> None:
    """Raise `ConfigError` if transformers has no model of this type for the task."""
    import transformers

    def has(task: str) -> bool:
        return type(about) in getattr(transformers, CLASSES[task])._model_mapping

    masked = type(about) in transformers.AutoModelForMaskedLM._model_mapping
    one_way = not masked or about.is_decoder or has("seq2seq_lm")
    fitting = [task for task in CLASSES if has(task) and (one_way or task != "causal_lm")]
    if config.task not in fitting:
        tasks = " and ".join(fitting)
        fits = f", which is for {tasks}" if tasks else "; hf_lora does not train such models"
        raise ConfigError([f"task: found {config.task}, but the model is a {about.model_type}{fits}"])


def _new_modules(config: Config, model: Any, info: Any, classes: int) -> list[str]:
    """The modules without weights in the model's files, except those that peft handles itself."""
    mismatched = {entry[0] for entry in info["mismatched_keys"]}
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if wrong := sorted(name for name in mismatched if shapes[name][0] != classes):
        raise ConfigError(
            [f"model: the shape of the weights {wrong[0]} does not fit the config of {config.model}"]
        )
    lacking = sorted({*info["missing_keys"], *mismatched})
    if lacking and config.task != "sequence_classification":
        names = lacking[0] + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else "")
        raise ConfigError(
            [f"model: {config.model} has no weights for {names}: it was not trained for {config.task}"]
        )
    modules = {name.rpartition(".")[0] for name in lacking}
    return sorted(path for path in modules if not any(part.endswith(HEADS) for part in path.split(".")))


def _check_targets(model: Any, targets: list[str]) -> None:
    """Raise `ConfigError` if no layer has one of these names."""
    known = {name: module for name, module in model.named_modules() if type(module).__name__ in ADAPTABLE}
    lasts = list(dict.fromkeys(name.rpartition(".")[2] for name in known))
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in known):
            near = did_you_mean(target, lasts)
            raise ConfigError(
                [f"target_modules: the model has no layer {target!r}{near or ';'} it has {', '.join(lasts)}"]
            )


def _places(model: Any) -> int | None:
    """The most tokens of models like RoBERTa, whose first positions are not used; None for others."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    return None


def _four_bits(device: torch.device) -> Any:
    """QLoRA (Dettmers et al. 2023): frozen weights are 4-bit normal floats, computation is in bf16."""
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
def _loading_errors(folder: Path) -> Iterator[None]:
    """Raise errors of transformers in loading a model as `ConfigError`."""
    try:
        with _quiet():
            yield
    except ConfigError:
        raise
    except Exception as error:  # json, safetensors and tokenizers have their own errors
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            raise
        reason = " ".join(str(error).split())[:MAX_QUOTED_LETTERS]  # any line may be the important one
        raise ConfigError([f"model: {folder} cannot be loaded: {type(error).__name__}: {reason}"]) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress a warning that peft causes itself: transformers will rename an attribute that it uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        yield
