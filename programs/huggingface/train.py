"""Train a GPT-2 of any size by Hugging Face's Trainer, on random tokens.

A small script as users of transformers have them, with the callback of programs/logger.
"""

import argparse

import torch
from dlbench_huggingface import DlbenchLog
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY, ITEMS = 256, 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "width", "heads", "sequence", "batch-per-device", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--deepspeed", help="settings of DeepSpeed, a JSON file")
    parser.add_argument("--output", required=True, help="folder of the Trainer's files")
    args = parser.parse_args()
    arguments = TrainingArguments(
        output_dir=args.output,
        per_device_train_batch_size=args.batch_per_device,
        max_steps=args.steps,
        logging_steps=1,
        bf16=args.precision == "bfloat16",
        # With use_cpu, DeepSpeed is left out.
        use_cpu=not (torch.cuda.is_available() or args.deepspeed),
        save_strategy="no",
        report_to="none",
        deepspeed=args.deepspeed,
        disable_tqdm=True,
        seed=args.seed,
    )
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=args.sequence,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(args.seed)
    trainer = Trainer(
        GPT2LMHeadModel(config),
        arguments,
        train_dataset=_items(args.sequence),
        callbacks=[DlbenchLog()],
    )
    trainer.train()


def _items(sequence):
    tokens = torch.randint(VOCABULARY, (ITEMS, sequence))
    return [{"input_ids": item, "labels": item} for item in tokens]


if __name__ == "__main__":
    main()
