"""Our training step under PyTorch beside the shortest one, on the same model, batch and core.

    uv run dlbench environment envs/pytorch
    envs/pytorch/.venv/bin/python -m tests.performance.training.torch_step

The shortest one is a module, torch.optim.SGD and cross-entropy in a loop of four lines, channels
last, under autocast where the precision asks for it; it waits for the last step only. Both are run
in turns, as they are and compiled. Prints, for each model, the ratios of images per second (ours
over theirs) over the pairs, on one core or one GPU; the target is 0.97. Last, the CPU time of
importing all of our trainer over that of importing PyTorch; the target is 1.5.
"""

import functools

from dlbench.common import plugins

from .. import bench
from ..bench import steps

PAIRS = 45
# Model, batch, steps in one half of a pair: some 0.4 seconds each on one core.
CASES = (("lenet5", 64, 40), ("resnet20", 32, 3), ("gpt_tiny", 8, 3), ("vit_tiny", 32, 4))


def main():
    parser = steps.parser(__doc__, PAIRS)
    which = "those that are compiled; without, all"
    parser.add_argument("--compiled-case", type=steps.case, action="append", help=which)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    steps.keep_to_one_core(args)
    cases = args.case or CASES
    rounds = ((False, cases), (True, args.compiled_case or cases))
    for compiled, of_these in rounds[:1] if args.steps_alone else rounds:
        steps.beside_shortest(
            figures,
            "pytorch",
            of_these,
            functools.partial(Bare, compiled),
            args.pairs,
            *("--compile", str(compiled), *steps.how(args)),
            how=", compiled" if compiled else "",
        )
    if not args.steps_alone:
        steps.beside_imports(figures, "pytorch", "PyTorch", args.pairs)


class Bare:
    """The same module and optimizer in the shortest step there is."""

    def __init__(self, compiled, spec, batch):
        import torch

        self.batch, self.steps = batch, spec.steps
        device, numbers = batch[0].device.type, getattr(torch, spec.precision, None)
        halves = numbers in (torch.bfloat16, torch.float16)
        self.autocast = functools.partial(torch.autocast, device, numbers, enabled=halves)
        module = plugins.load("pytorch/models", spec.model).build()
        self.module = module.to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            module.parameters(), spec.learning_rate, fused=device == "cuda" or None
        )
        if compiled:
            self.module = torch.compile(module)

    def __call__(self):
        from torch.nn import functional

        items, labels = self.batch
        for _ in range(self.steps):
            self.optimizer.zero_grad()
            with self.autocast():
                logits = self.module(items).flatten(0, -2)  # of all places of a text
            loss = functional.cross_entropy(logits, labels.flatten())
            loss.backward()
            self.optimizer.step()
        return float(loss)


if __name__ == "__main__":
    main()
