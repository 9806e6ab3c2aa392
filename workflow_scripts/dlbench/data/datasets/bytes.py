"""Generated text that a model can learn, without a download; its tokens are bytes.

- Sentences of a small grammar with a fixed seed: verbs agree with their nouns in number, a noun
  may have a relative clause, and a pronoun may refer to the subject.
- Letters, spaces and full stops are about as frequent as in English. A model that has learned only
  their frequency has a loss of about three nats a byte (the catalogue has the value); for a lower
  loss it must learn words, for the lowest the agreement.
- The held-out text has other sentences of the same grammar.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "Generated text"
AUTHOR = "dlbench"
DESCRIPTION = "a mebibyte of sentences of a small grammar, read byte by byte"
KIND = "text"
LICENCE = "CC0"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = False
TERMS = ""
VOCABULARY = 256
BYTES_PER_TOKEN = 1
TOKENS = {"train": 1 << 20, "validation": 1 << 16}
SPLITS = {"train": 256, "validation": 16}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "stream", "dtype": "uint8", "classes": 256}
FILES = {}
SEED = 1913
NOUNS = ("node", "network", "kernel", "gradient", "student", "engineer", "cluster", "model",
         "figure", "cable", "morning", "window", "river", "machine", "question")  # fmt: skip
VERBS = ("wait", "compute", "learn", "remember", "turn", "stand", "follow", "measure")
LINKS = ("see", "need", "help", "find", "ask", "leave")  # verbs with an object
ADJECTIVES = ("quiet", "large", "early", "second", "cold", "careful", "narrow", "bright")
PLACES = ("in the hall", "at night", "behind the door", "without a word", "on the hill", "again")


def open(folder: Path) -> Source:
    from dlbench.data.sources import Pieces

    return Pieces(texts())


def texts() -> dict[str, bytes]:
    """The text of each split."""
    import random

    rng = random.Random(SEED)
    parts, length = [], 0
    while length < sum(TOKENS.values()):
        parts.append(_sentence(rng))
        length += len(parts[-1])
    text = "".join(parts).encode("ascii")
    train = TOKENS["train"]
    return {"train": text[:train], "validation": text[train : train + TOKENS["validation"]]}


def _sentence(rng):
    plural = rng.random() < 0.5
    words = [_noun_phrase(rng, plural), _verb_phrase(rng, plural)]
    if rng.random() < 0.3:
        words += ["and", "they" if plural else "it", _verb_phrase(rng, plural)]
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}.{rng.choice((' ', ' ', ' ', chr(10)))}"


def _noun_phrase(rng, plural, depth=0):
    words = [rng.choice(("the", "some", "many", "all") if plural else ("the", "a", "every"))]
    if rng.random() < 0.4:
        words.append(rng.choice(ADJECTIVES))
    words.append(rng.choice(NOUNS) + "s" * plural)
    if words[0] == "a" and words[1][0] in "aeiou":
        words[0] = "an"
    if depth == 0 and rng.random() < 0.2:  # the verb stands far from its noun
        other = rng.random() < 0.5
        words += ["that", _noun_phrase(rng, other, 1), _agreed(rng.choice(LINKS), other)]
    return " ".join(words)


def _verb_phrase(rng, plural):
    if rng.random() < 0.5:
        verb, rest = rng.choice(VERBS), rng.choice(PLACES)
    else:
        verb, rest = rng.choice(LINKS), _noun_phrase(rng, rng.random() < 0.5, 1)
    return f"{_agreed(verb, plural)} {rest}"


def _agreed(verb, plural):
    return verb if plural else verb + "s"
