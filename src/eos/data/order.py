"""Order: which samples a step trains on, as a pure function of the seed and the step.

Every epoch has its own permutation. The processes of a run share a step's batch by slots, so that
the batch does not depend on their number; a slot whose sample cannot be used draws replacements.
"""

from collections.abc import Iterator
from functools import lru_cache
from random import Random


@lru_cache(maxsize=4)
def permutation(size: int, *, seed: int, epoch: int = 0) -> tuple[int, ...]:
    """Order of ``size`` samples in an epoch."""
    order = list(range(size))
    Random(f"eos {seed} epoch {epoch}").shuffle(order)
    return tuple(order)


def first_choice(size: int, *, seed: int, step: int, slot: int, batch: int) -> int:
    """Index among ``size`` samples of a slot of a step's global batch."""
    epoch, place = divmod(step * batch + slot, size)
    return permutation(size, seed=seed, epoch=epoch)[place]


def choices(size: int, *, seed: int, step: int, slot: int, batch: int) -> Iterator[int]:
    """Give a slot's sample, then one replacement after the other."""
    yield first_choice(size, seed=seed, step=step, slot=slot, batch=batch)
    replacements = Random(f"eos {seed} step {step} slot {slot}")
    while True:
        yield replacements.randrange(size)


def held_out(size: int, count: int, *, seed: int) -> tuple[list[int], list[int]]:
    """Split ``size`` samples into those to train on and ``count`` to validate with."""
    chosen = set(Random(f"eos {seed} held out").sample(range(size), min(count, size - 1)))
    return [i for i in range(size) if i not in chosen], sorted(chosen)
