"""A loop of one's own in PyTorch; lines that end with `# log` are those about the logger.

python pytorch_loop.py --steps 60 --batch 64
"""

import argparse

import dlbench_log  # log
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
wait = torch.cuda.synchronize if device.type == "cuda" else None  # log
log = dlbench_log.Log(synchronize=wait, total_steps=args.steps, global_batch=args.batch)  # log
log.window(10 if wait else 1)  # log

torch.manual_seed(1)
items = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
loader = torch.utils.data.DataLoader(items, args.batch, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def endless():
    """Batches of one epoch after the other."""
    while True:
        yield from loader


batches = log.data(endless())  # log
for _ in range(args.steps):
    with log.step():  # log
        inputs, labels = next(batches)
        loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.loss(loss.detach(), learning_rate=0.1)  # log
with torch.no_grad():
    scores = model(items.tensors[0].to(device))
    correct = scores.argmax(1) == items.tensors[1].to(device)
log.evaluation(split="train", top1=correct.float().mean(), examples=512)  # log
with log.checkpoint():  # log
    torch.save(model.state_dict(), "model.pt")
