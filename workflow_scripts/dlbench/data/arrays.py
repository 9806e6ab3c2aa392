"""Sources that hold all their records as arrays: what small datasets open to."""


class ArraySource:
    """Images of one shape, each with a label or a target of its own shape.

    Args:
        splits: maps `train` and `validation` to (images, targets), arrays whose first axis
            counts records; targets are integers of shape (n,) or images.
    """

    def __init__(self, splits):
        self._splits = splits

    def count(self, split):
        return len(self._splits[split][0])

    def place(self, split, index):
        return f"{split} record {index}"

    def features(self, split, index):
        images, targets = self._splits[split]
        image, target = images[index], targets[index]
        height, width, channels = image.shape
        features = {
            "image/encoded": image.tobytes(),
            "image/format": "RAW",
            "image/height": height,
            "image/width": width,
            "image/channels": channels,
        }
        if target.ndim:
            return features | {"image/mask": target.tobytes()}
        return features | {"image/class/label": int(target)}
