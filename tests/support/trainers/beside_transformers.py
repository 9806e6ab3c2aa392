"""Our Llama and Mixtral beside Hugging Face's: python beside_transformers.py, with transformers.

It prints as JSON, for each model, both numbers of parameters; of the tiny ones the difference of
logits, losses and gradients from theirs, relative; of the others that of rotary frequencies.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer.pytorch.models import llama
from dlbench.trainer.pytorch.step import LOSSES

CLASSES = {"llama": transformers.LlamaForCausalLM, "mixtral": transformers.MixtralForCausalLM}
# The published config.json of Llama-3.1-8B.
LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip
# Ours by theirs, side by side where there are several; of experts the last two axes are turned.
WEIGHTS = {
    "words.weight": "model.embed_tokens.weight",
    "logits.weight": "lm_head.weight",
    "norm.weight": "model.norm.weight",
    "norm1.weight": "input_layernorm.weight",
    "norm2.weight": "post_attention_layernorm.weight",
    "qkv.weight": "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight",
    "out.weight": "self_attn.o_proj.weight",
    "inner.0.weight": "mlp.gate_proj.weight mlp.up_proj.weight",
    "inner.2.weight": "mlp.down_proj.weight",
    "inner.router": "mlp.gate.weight",
    "inner.up": "mlp.experts.gate_up_proj",
    "inner.down": "mlp.experts.down_proj",
}


def main():
    torch.manual_seed(1)
    print(json.dumps({name: compared(name) for name in
                      ("llama_tiny", "mixtral_tiny", "llama31_8b", "mixtral_8x7b")}))  # fmt: skip


def compared(name):
    constants = plugins.constants("keras/models", name)
    tiny, native = name.endswith("tiny"), plugins.load("pytorch/models", name)
    with torch.device("cpu" if tiny else "meta"):  # whose weights take no memory
        theirs = their_model(name, constants).train()
        ours = native.build(constants["INPUT_SHAPE"], constants["CLASSES"]).train()
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    if tiny:
        return {"parameters": counts, **differences(ours, theirs, constants)}
    size = constants["SIZE"]["width"] // constants["SIZE"]["heads"]
    frequencies = llama.frequencies(size, **constants["TURNS"])
    turns = LlamaRotaryEmbedding(theirs.config).inv_freq
    return {"parameters": counts, "frequencies": distance(frequencies, turns)}


def their_model(name, constants):
    kind, size = CLASSES[name.partition("_")[0].removesuffix("31")], constants["SIZE"]
    experts = {
        "num_local_experts": size.get("experts"),
        "num_experts_per_tok": size.get("chosen"),
        "router_aux_loss_coef": constants["BALANCE"],
        "output_router_logits": True,
    }
    scaling = LLAMA31 if "slower" in constants["TURNS"] else {"rope_type": "default"}
    return kind(kind.config_class(
        vocab_size=constants["CLASSES"], hidden_size=size["width"],
        num_attention_heads=size["heads"], num_key_value_heads=size["key_value_heads"],
        intermediate_size=size["hidden"], num_hidden_layers=size["depth"],
        rms_norm_eps=constants["EPSILON"], tie_word_embeddings=False,
        rope_parameters={"rope_theta": constants["TURNS"]["base"], **scaling},
        **experts if "experts" in size else {},
    ))  # fmt: skip


def differences(ours, theirs, constants):
    with torch.no_grad():
        for weight in theirs.parameters():  # so that attention and routing are far from even
            weight.normal_(float(weight.ndim == 1), 0.1)
        for name, weight in ours.named_parameters():
            weight.copy_(by_our_name(name, dict(theirs.named_parameters())))
    tokens = torch.randint(constants["CLASSES"], (3, 129))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].contiguous()
    expected = theirs(inputs, labels=targets, shift_labels=targets)
    expected.loss.backward()
    outputs = ours(inputs)
    logits, added = outputs if isinstance(outputs, tuple) else (outputs, torch.zeros(()))
    loss = LOSSES["language"].loss(targets, logits) + added
    loss.backward()
    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    return {
        "logits": distance(logits, expected.logits),
        "loss": distance(loss, expected.loss),
        "balance": [float(added), float(getattr(expected, "aux_loss", 0) * constants["BALANCE"])],
        "gradients": max(
            distance(weight.grad, by_our_name(name, gradients))
            for name, weight in ours.named_parameters()
        ),
    }


def by_our_name(name, theirs):
    """Their tensor, or tensors side by side, that ours of this name is."""
    prefix = ""
    if name.startswith("blocks."):
        _, number, name = name.split(".", 2)
        prefix = f"model.layers.{number}."
    found = torch.cat([theirs[prefix + part] for part in WEIGHTS[name].split()])
    return found if name.endswith("weight") else found.transpose(-1, -2)


def distance(ours, theirs):
    """The norm of the difference over that of theirs."""
    return float((ours - theirs).norm() / theirs.norm())


if __name__ == "__main__":
    main()
