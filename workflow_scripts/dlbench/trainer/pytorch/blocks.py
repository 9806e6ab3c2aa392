"""The blocks of a model: what it repeats, as the layers of a transformer.

They are the members of a torch.nn.ModuleList that are of one class and have several layers with
weights: the list of a model of one's own is found, too.
"""

from torch import nn

FEWEST_LAYERS = 2  # with weights, of a block


def of_model(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, in its order; the outermost where there are some within others."""
    found: list[nn.Module] = []
    for child in model.children():
        members = list(child) if isinstance(child, nn.ModuleList) else []
        if len({type(member) for member in members}) == 1 and all(map(_is_block, members)):
            found += members
        else:
            found += of_model(child)
    return found


def _is_block(module):
    with_weights = (part for part in module.modules() if part._parameters)
    return len(list(with_weights)) >= FEWEST_LAYERS
