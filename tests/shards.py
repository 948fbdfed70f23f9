"""Shard a tiny model of every family over two processes; say how far from itself that takes it.

torchrun --nproc-per-node 2 -m tests.shards
"""

import os

import torch
from torch import distributed

from eos.engine.relaxation import RelaxedTheta
from eos.models.families import FAMILIES
from eos.models.sharding import shard
from eos.searching.gradients import search_losses
from eos.searching.objective import Objective
from eos.space.theta import GROUPS, Theta
from eos.testing.tiny import tiny_backbone, tiny_inputs


def found(backbone, inputs):
    """The losses of a search step and all gradients, in one tensor."""
    visual = int(backbone.visual_mask(inputs["input_ids"]).sum())
    theta = Theta(backbone.num_layers, visual_tokens=visual)
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -3:] = inputs["input_ids"][:, -3:]
    given = {"inputs": inputs, "labels": labels, "objective": Objective(), "budget": 4}
    losses = search_losses(backbone, RelaxedTheta(theta), **given)
    losses.total.backward()
    return torch.cat(
        [losses.total.detach()[None], *(theta.weights[group].grad for group in GROUPS)]
    )


def say(line):
    """Print in one piece, whatever the other process prints."""
    os.write(1, f"{line}\n".encode())


def main():
    """Measure family by family; processes have different inputs and, at first, other weights."""
    distributed.init_process_group("gloo")
    rank, count = distributed.get_rank(), distributed.get_world_size()
    for kind in FAMILIES:
        backbone = tiny_backbone(kind)
        inputs = tiny_inputs(backbone, texts=(9 + rank,), seed=rank)
        before = found(backbone, inputs)
        if rank:
            with torch.no_grad():
                for weight in backbone.model.parameters():
                    weight.zero_()  # what the first process has counts
            spoilt = (found(backbone, inputs) - before).abs().max()
        shard(backbone.model, processes=count, device=torch.device("cpu"))
        away = (found(backbone, inputs) - before).abs().max()
        held = sum(weight.to_local().numel() for weight in backbone.model.parameters())
        share = held / sum(weight.numel() for weight in backbone.model.parameters())
        say(f"{kind} {rank}: {away:.1e} away, holds {share:.1f}")
        if rank:
            say(f"{kind} control: {spoilt:.1e} away")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
