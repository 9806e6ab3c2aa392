"""Train a small transformer by Lightning's Trainer, on random tokens.

A LightningModule with PyTorch's own layers, with the callback of programs/logger.
"""

import argparse

import lightning
import torch
from dlbench_lightning import DlbenchLog
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY = 256
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}


class Model(lightning.LightningModule):
    """Token and position embeddings, layers with causal attention, logits of the next token."""

    def __init__(self, layers, width, heads, sequence):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(sequence, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), False)
        self.logits = nn.Linear(width, VOCABULARY, bias=False)

    def training_step(self, batch, _):
        (tokens,) = batch
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        length = inputs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, inputs.device)
        places = torch.arange(length, device=inputs.device)
        states = self.layers(self.tokens(inputs) + self.positions(places), mask, is_causal=True)
        return nn.functional.cross_entropy(self.logits(states).flatten(0, 1), targets.flatten())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "width", "heads", "sequence", "batch-per-device", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    args = parser.parse_args()
    lightning.seed_everything(args.seed)
    tokens = torch.randint(VOCABULARY, (args.steps * args.batch_per_device, args.sequence + 1))
    trainer = lightning.Trainer(
        max_steps=args.steps,
        devices=args.devices,
        precision=PRECISIONS[args.precision],
        logger=False,
        callbacks=[DlbenchLog()],
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    model = Model(args.layers, args.width, args.heads, args.sequence)
    trainer.fit(model, DataLoader(TensorDataset(tokens), args.batch_per_device))


if __name__ == "__main__":
    main()
