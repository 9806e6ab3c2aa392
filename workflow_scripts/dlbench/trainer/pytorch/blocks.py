"""The blocks of a model: the modules that it repeats, such as the layers of a transformer.

They are the members of a torch.nn.ModuleList if all have one class and several layers with weights.
So the blocks of users' models are found, too.
"""

from torch import nn

MIN_LAYERS = 2  # with weights, of a block


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, in its order; of nested blocks the outermost ones."""
    blocks: list[nn.Module] = []
    for child in model.children():
        members = list(child) if isinstance(child, nn.ModuleList) else []
        if len({type(member) for member in members}) == 1 and all(map(_is_block, members)):
            blocks += members
        else:
            blocks += find_blocks(child)
    return blocks


def _is_block(module):
    with_weights = (layer for layer in module.modules() if layer._parameters)
    return len(list(with_weights)) >= MIN_LAYERS
