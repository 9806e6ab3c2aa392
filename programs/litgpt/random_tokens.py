"""Random tokens for litGPT, which names a class of data on its command line."""

import torch
from litgpt.data import DataModule
from torch.utils.data import DataLoader


class RandomTokens(DataModule):
    """Batches of random tokens; an item is one token longer than the input of the model.

    Args:
        vocabulary: how many tokens there are.
        items: how many items an epoch has.
    """

    def __init__(self, vocabulary: int, items: int = 1024) -> None:
        self.vocabulary, self.items = vocabulary, items

    def connect(self, tokenizer=None, batch_size=1, max_seq_length=None):
        self.batch_size, self.length = batch_size, max_seq_length + 1

    def train_dataloader(self):
        tokens = torch.randint(self.vocabulary, (self.items, self.length))
        return DataLoader(tokens, self.batch_size, drop_last=True)

    val_dataloader = train_dataloader
