"""How many parameters models have, and the sizes in which tests compare frameworks' versions.

Trainable parameters: what publications print is in the docstrings, to the digits they print; exact
numbers are those of
- LeCun et al. 1998 as in later practice (lenet5), Keras's CIFAR-10 example (cnn12);
- tf_cnn_benchmarks' layers, counted by hand (alexnet, overfeat, googlenet);
- torchvision (vgg11, resnets for ImageNet) and keras.applications;
- Hugging Face's GPT2LMHeadModel, BertForMaskedLM, LlamaForCausalLM and MixtralForCausalLM,
  torchvision's vit_b_16 (gpt2_small, bert_base, llama31_8b, mixtral_8x7b, vit_b16);
- the layers in the publication, counted by hand (the others).
"""

PARAMETERS = {
    "lenet5": 61_706,
    "cnn12": 1_250_858,
    "alexnet": 61_838_248,
    "overfeat": 145_920_872,
    "googlenet": 6_998_552,
    "inception_v3": 23_817_352,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet20": 269_722,
    "resnet56": 853_018,
    "resnet50": 25_557_032,
    "resnet50_v1_5": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "lstm_ptb": 10_000 * 200 + 2 * 4 * 200 * (200 + 200 + 1) + 201 * 10_000,
    "unet": 1_940_817,
    "gpt2_small": 124_439_808,
    "gpt_tiny": 858_880,
    "bert_base": 109_514_298,
    "vit_b16": 86_567_656,
    "vit_tiny": 208_074,
    "llama31_8b": 8_030_261_248,
    "llama_tiny": 853_120,
    "mixtral_8x7b": 46_702_792_704,
    "mixtral_tiny": 2_626_688,
}
# Higher than wide or the other way round, odd where models halve: an axis or a zero that is in the
# wrong place is seen. What is flattened has more than one place.
SMALL_ITEMS = {
    "lenet5": (36, 44, 1),
    "cnn12": (20, 29, 3),
    "alexnet": (67, 99, 3),
    "overfeat": (91, 123, 3),
    "googlenet": (64, 97, 3),
    "inception_v3": (75, 107, 3),
    "vgg11": (32, 65, 3),
    "vgg16": (32, 65, 3),
    "vgg19": (32, 65, 3),
    "resnet20": (20, 33, 3),
    "resnet56": (20, 33, 3),
    "resnet50": (48, 65, 3),
    "resnet50_v1_5": (48, 65, 3),
    "resnet101": (48, 65, 3),
    "resnet152": (48, 65, 3),
    "lstm_ptb": (5,),
    "unet": (32, 48, 1),
    # Of the large ones these share all layers, and blocks that normalise last are BERT's.
    "gpt_tiny": (5,),
    "vit_tiny": (8, 12, 3),
    "bert_base": (5,),  # two of its blocks
    "llama_tiny": (5,),
    "mixtral_tiny": (5,),
}
