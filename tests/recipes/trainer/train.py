"""Fine-tune a causal language model with the Trainer; its options by HfArgumentParser."""

from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="tiny-llama", metadata={"help": "Model, and its tokenizer"})
    attention_dropout: float = field(default=0.0, metadata={"help": "Dropout of attention weights"})


@dataclass
class DataArguments:
    dataset_name: str = field(default="sentences", metadata={"help": "A data set with a text and two splits"})
    max_length: int = 64


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, attention_dropout=model_args.attention_dropout
    )
    rows = load_dataset(data_args.dataset_name)
    rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=data_args.max_length))
    rows = rows.remove_columns("text")
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
