"""Models of PyTorch: those of dlbench/trainer/keras/models/ as torch.nn.Modules, in the same files.

A model file defines TASK, INPUT_SHAPE (channels last), CLASSES and VARIANTS, as there, and
    CONSTANTS_OF (optional): "keras/models" if the file of its name there has the constants that it
        lacks; its `build` then takes `constants`, as that of a family.
    BLOCKS (optional): True if the model has blocks that are alike, which compile_mode: blocks
        compiles; by default, if it defines RECOMPUTES; and
    build(input_shape, classes): a torch.nn.Module that takes (batch, channels, height, width),
        or (batch, tokens) for language, and returns logits: (batch, classes) for
        classification, (batch, 1, height, width) for segmentation and
        (batch, tokens, classes) for language. While it trains, it may return (logits, a loss that
        is minimised with that of its task).
Layers, initial weights and numbers of parameters are those of the model of the same name for Keras,
whose file names the publication; tests compare them. torchvision, whose AlexNet and GoogLeNet are
other networks, is not used. Layers that families share lie in layers.py above.
"""
