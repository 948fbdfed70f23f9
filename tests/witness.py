"""Run a command of `eos` as one of several processes; say of how many, and what it held at the end.

accelerate launch --use_fsdp -m tests.witness search …
"""

import sys

from torch import distributed

from eos import cli
from eos.commands import search


def main() -> int:
    """Look at the backbone that the command loads."""
    place, seen = search.load_placed, []

    def placed(config, processes, **options):
        seen.append((place(config, processes, **options), distributed.get_world_size()))
        return seen[-1][0]

    search.load_placed = placed
    code = cli.main(sys.argv[1:])
    backbone, count = seen[0]
    weights = [weight for layer in backbone.layers for weight in layer.parameters()]
    parts = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]
    share = sum(part.numel() for part in parts) / sum(weight.numel() for weight in weights)
    print(f"of {count} processes, holds {share:.2f} of the layers")
    return code


if __name__ == "__main__":
    sys.exit(main())
