"""TensorFlow's stateless random numbers in NumPy.

- Permutations: a cycle-walking cipher (J. Black and P. Rogaway, 2002, Ciphers with arbitrary finite
  domains) on SIMON (R. Beaulieu et al., 2013, eprint 2013/404), as the operation
  RandomIndexShuffle has it.
- Streams: Philox4x32-10 (J. Salmon et al., 2011, Parallel random numbers: as easy as 1, 2, 3),
  with the seeds mixed as in TensorFlow's stateless operations.
"""

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np

MIN_BLOCK_BITS = 16
# Of SIMON: the constant and the bit sequence of its key schedule.
CONSTANT, SEQUENCE = 0xFFFFFFFC, 0x7369F885192C0EF5
# Of Philox: the multipliers, and the increments of the key in each round.
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
SEED_KEY = (0x3EC8F720, 0x02461E29)  # with which TensorFlow mixes the seeds of its operations
BLOCKS = 256  # of a stream, computed at once
LOW = 0xFFFFFFFF  # the bits of a word


def shuffled_places(
    places: np.ndarray, seed: tuple[int, int, int], last: int, rounds: int
) -> np.ndarray:
    """Apply a pseudo-random permutation of 0 .. last to places: RandomIndexShuffle.

    Args:
        places: whole numbers from 0 to `last`.
        seed: three words, of which the low 32 bits are used.
        rounds: of the cipher, an even number from 4.
    """
    values = np.asarray(places, np.uint64).copy()
    if last == 0:
        return np.zeros(values.shape, np.int64)
    block_bits = math.ceil(math.log2(last))
    bits = max(block_bits + block_bits % 2, MIN_BLOCK_BITS) // 2
    step: Callable[[np.ndarray], np.ndarray]
    if 2 * bits == MIN_BLOCK_BITS:  # a table, because few places in a large block need many steps
        step = _table(tuple(seed), rounds).__getitem__
    else:
        keys = _round_keys(seed, rounds, bits)
        step = functools.partial(_encrypted, keys=keys, bits=bits)
    values = step(values)
    outside = np.flatnonzero(values > last)
    while outside.size:
        values[outside] = step(values[outside])
        outside = outside[values[outside] > last]
    return values.astype(np.int64)


@functools.lru_cache(maxsize=4)
def _table(seed, rounds):
    """All values of the smallest block, encrypted."""
    bits = MIN_BLOCK_BITS // 2
    values = np.arange(1 << MIN_BLOCK_BITS, dtype=np.uint64)
    return _encrypted(values, _round_keys(seed, rounds, bits), bits)


def _round_keys(seed, rounds, bits):
    mask = (1 << bits) - 1
    keys = [word & LOW & mask for word in seed]
    sequence = SEQUENCE & mask
    for number in range(3, rounds):
        before = keys[number - 1]
        turned = _turned_right(before, 3, bits) ^ _turned_right(before, 4, bits)
        keys.append(CONSTANT & mask ^ sequence & 1 ^ keys[number - 3] ^ turned)
        sequence >>= 1
    return keys


def _turned_right(word, by, bits):
    return (word >> by | word << (bits - by)) & ((1 << bits) - 1)


def _encrypted(values, keys, bits):
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(bits)

    def turned(words, by):
        return (words << np.uint64(by) | words >> np.uint64(bits - by)) & mask

    def mixed(words):
        return turned(words, 1) & turned(words, 8) ^ turned(words, 2)

    left, right = values >> shift & mask, values & mask
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        left = left ^ mixed(right) ^ np.uint64(first)
        right = right ^ mixed(left) ^ np.uint64(second)
    return left << shift | right


def stream(low: int, high: int) -> Iterator[int]:
    """Numbers of 32 bits without end: Philox with the key `low` from the counter `high` << 64."""
    return _stream(_words(low), (0, 0, *_words(high)))


def stream_of_seeds(first: int, second: int) -> Iterator[int]:
    """Numbers of 32 bits without end: those of a stateless operation with two seeds."""
    mixed = _philox(SEED_KEY, (*_words(first), *_words(second)), 1)[0]
    return _stream((int(mixed[0]), int(mixed[1])), (0, 0, int(mixed[2]), int(mixed[3])))


def real(number: int) -> np.float32:
    """A number in [0, 1), of the 23 low bits of one of 32."""
    return np.uint32(0x3F800000 | number & 0x7FFFFF).view(np.float32) - np.float32(1)


def below(numbers: Iterator[int], end: int) -> int:
    """A whole number from 0 to end - 1, each equally often; takes one or more of the numbers."""
    number = next(numbers)
    if end & (end - 1) == 0:
        return number & (end - 1)
    while number < LOW % end + 1:  # otherwise small results would be more frequent
        number = next(numbers)
    return number % end


def permutation(count: int, first: int, second: int) -> list[int]:
    """0 .. count - 1 in another order: stateless_shuffle of them with two seeds."""
    order, numbers = list(range(count)), stream_of_seeds(first, second)
    for place in range(count - 1):
        other = place + next(numbers) % (count - place)
        order[place], order[other] = order[other], order[place]
    return order


def _words(number):
    return number & LOW, number >> 32 & LOW


def _stream(key, counter):
    start = sum(word << 32 * place for place, word in enumerate(counter))
    while True:
        words = (start >> 32 * place & LOW for place in range(4))
        yield from _philox(key, tuple(words), BLOCKS).ravel().tolist()
        start += BLOCKS


def _philox(key, counter, blocks):
    """So many blocks of four numbers of 32 bits: (blocks, 4), from a counter on."""
    words = [np.full(blocks, word, np.uint64) for word in counter]
    # The counter's low word goes past 32 bits in no stream of ours, which have fewer numbers.
    words[0] = words[0] + np.arange(blocks, dtype=np.uint64) & np.uint64(LOW)
    keys = list(key)
    for _ in range(ROUNDS):
        products = [words[0] * np.uint64(FACTORS[0]), words[2] * np.uint64(FACTORS[1])]
        high, low = [p >> np.uint64(32) for p in products], [p & np.uint64(LOW) for p in products]
        words = [
            high[1] ^ words[1] ^ np.uint64(keys[0]),
            low[1],
            high[0] ^ words[3] ^ np.uint64(keys[1]),
            low[0],
        ]
        keys = [key + step & LOW for key, step in zip(keys, STEPS, strict=True)]
    return np.stack(words, axis=1)
