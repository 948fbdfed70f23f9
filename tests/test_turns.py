"""New pictures in a later turn, on the cache of the turns before.

The reference is one uncached pass of the full model over the whole conversation, in which no token
attends to those that a layer would not hold. It shares no code with the reduction.
"""

import pytest
import torch
from transformers import DynamicCache

from eos import BackboneError, Plan, Step, Theta, reduced
from eos.engine.reduced import Reduction, attached
from eos.models.families import FAMILIES
from eos.testing.tiny import IMAGE, collated, tiny_backbone, tiny_inputs
from tests.test_contract import every_family, tokens_of
from tests.test_forward import flash_like, positions

SAID = torch.tensor([[11, 12, 13]])  # text between the turns and after them


@pytest.fixture(scope="module")
def backbones():
    return {kind: tiny_backbone(kind, attn_implementation="eager") for kind in FAMILIES}


@pytest.fixture(scope="module")
def llava(backbones):
    return backbones["llava"]


def chance(backbone, *layers, **fields):
    """Keep fewer and fewer tokens at random, which a test can foretell."""
    tokens = tokens_of(backbone, tiny_inputs(backbone))
    keeps = [max(2, round(tokens * frac)) for frac in (0.7, 0.5, 0.3)]
    steps = [
        Step(layer=i, keep=keep, score="random", **fields)
        for i, keep in zip(layers, keeps, strict=False)
    ]
    return Plan(visual_tokens=tokens, num_layers=4, steps=steps)


def turns_of(backbone, seed=0):
    first = tiny_inputs(backbone, texts=(5,), seed=seed)
    return first, tiny_inputs(backbone, texts=(4,), seed=seed + 1, small=True)


def whole_of(first, second):
    """Join two turns, with something said after each, into one conversation."""
    joined = {}
    for name, value in first.items():
        parts = [value, second[name]]
        if value.shape == first["input_ids"].shape:
            said = {"input_ids": SAID, "attention_mask": torch.ones_like(SAID)}
            said = said.get(name, torch.zeros_like(SAID))
            joined[name] = torch.cat([parts[0], said, parts[1], said], dim=1)
        else:
            nested = name == "pixel_values" and value.ndim == 5 and "image_sizes" not in first
            joined[name] = torch.cat(parts, dim=1 if nested else 0)
    return joined


def places(backbone, whole):
    """Position ids of a conversation, as a caller makes them."""
    if not backbone.spatial_positions:
        return positions(whole["attention_mask"])
    return backbone.multimodal.get_rope_index(
        whole["input_ids"],
        image_grid_thw=whole["image_grid_thw"],
        attention_mask=whole["attention_mask"],
        mm_token_type_ids=whole["mm_token_type_ids"],
    )[0]


def conversed(backbone, model, first, second):
    """Logits of the second turn and what follows it, all on one cache."""
    whole, cache, found = whole_of(first, second), DynamicCache(), []
    ids, end = places(backbone, whole), 0
    said = [{"input_ids": x[None]} for x in SAID.T]
    for turn in (first, *said, second, *said):
        start, end = end, end + turn["input_ids"].shape[1]
        turn = {**turn, "attention_mask": whole["attention_mask"][:, :end]}
        turn["position_ids"] = ids[..., start:end]
        found.append(model(**turn, past_key_values=cache, use_cache=True).logits)
    return torch.cat(found[4:], dim=1), cache


def hidden_tokens(plan, whole):
    """Which tokens each layer does not hold: each picture keeps its own fractions, at random."""
    visual = whole["input_ids"][0] == IMAGE
    begins = (visual & ~visual.roll(1)).nonzero().flatten().tolist()
    hidden = torch.zeros(plan.num_layers + 1, len(visual), dtype=torch.bool)
    for begin in begins:
        end = begin + int((~visual[begin:]).nonzero()[0])
        left = torch.arange(begin, end)
        for step in plan.steps:
            keep = max(1, round(step.keep / plan.visual_tokens * (end - begin)))
            drawn = torch.rand(len(left), generator=torch.Generator().manual_seed(0))
            gone = torch.ones(len(left), dtype=torch.bool)
            gone[drawn.topk(min(keep, len(left))).indices] = False
            hidden[step.layer + 1 :, left[gone]] = True
            left = left[~gone]
    return hidden


def referred(backbone, plan, first, second):
    """Logits of the same tokens, by the full model that looks away from what is dropped."""
    whole = whole_of(first, second)
    hidden = hidden_tokens(plan, whole)

    def looking_away(layer):
        def hook(module, args, kwargs):
            mask = kwargs["attention_mask"].clone()
            mask[..., hidden[layer]] = torch.finfo(mask.dtype).min
            kwargs = {**kwargs, "attention_mask": mask}
            if any(step.positions == "reindex" and step.layer < layer for step in plan.steps):
                ids = ((~hidden[layer]).long().cumsum(0) - 1)[None]
                kwargs["position_embeddings"] = backbone.rotary(args[0], ids, layer)
            return args, kwargs

        return hook

    hooks = [
        layer.register_forward_pre_hook(looking_away(i), with_kwargs=True)
        for i, layer in enumerate(backbone.layers)
    ]
    try:
        ids = places(backbone, whole)
        logits = backbone.model(**whole, position_ids=ids, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    return logits[:, -(second["input_ids"].shape[1] + SAID.shape[1]) :], hidden


LAYERS = {"in the decoder": (0, 1, 2), "before it": (-1, 1)}


@every_family
@torch.no_grad()
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_a_later_turn_is_reduced_and_earlier_ones_stay(backbones, kind, layers):
    backbone = backbones[kind]
    plan, (first, second) = chance(backbone, *layers), turns_of(backbone)
    with reduced(backbone, plan) as model:
        found, cache = conversed(backbone, model, first, second)
    expected, hidden = referred(backbone, plan, first, second)
    text = torch.cat([second["input_ids"] != IMAGE, torch.ones_like(SAID).bool()], dim=1)
    assert torch.allclose(found[text], expected[text], atol=1e-4)
    for layer, held in enumerate(cache.layers):
        assert held.get_seq_length() == int((~hidden[layer]).sum())
    with reduced(backbone, chance(backbone, 0)) as model:  # the control: another plan
        other, _ = conversed(backbone, model, first, second)
    assert not torch.allclose(other[text], expected[text], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llava", "gemma3", "internvl"])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_other_attention_and_new_positions(backbones, kind, layers):
    plan, (first, second) = chance(backbones[kind], *layers), turns_of(backbones[kind])
    sdpa = tiny_backbone(kind)
    text = torch.cat([second["input_ids"] != IMAGE, torch.ones_like(SAID).bool()], dim=1)
    with reduced(sdpa, plan) as model:
        found, _ = conversed(sdpa, model, first, second)
    expected, _ = referred(backbones[kind], plan, first, second)
    assert torch.allclose(found[text], expected[text], atol=1e-4)
    plan = chance(backbones[kind], *layers, positions="reindex")
    with reduced(sdpa, plan) as model:
        moved, _ = conversed(sdpa, model, first, second)
    expected, _ = referred(backbones[kind], plan, first, second)
    assert torch.allclose(moved[text], expected[text], atol=1e-4)
    assert not torch.allclose(moved[text], found[text], atol=1e-3)


@torch.no_grad()
def test_a_first_turn_without_a_picture(llava):
    words, picture = tiny_inputs(llava, images=0, texts=(9,)), tiny_inputs(llava)
    mask = torch.cat([words["attention_mask"], picture["attention_mask"]], dim=1)
    plan, cache = chance(llava, 0, 1, positions="reindex"), DynamicCache()
    with reduced(llava, plan) as model:
        model(**words, past_key_values=cache, use_cache=True)
        second = {**picture, "attention_mask": mask}
        found = model(**second, past_key_values=cache, use_cache=True).logits[:, -1]
        ids = torch.cat([words["input_ids"], picture["input_ids"]], dim=1)
        at_once = model(
            input_ids=ids, attention_mask=mask, pixel_values=picture["pixel_values"]
        ).logits[:, -1]
    assert torch.allclose(found, at_once, atol=1e-4)


@torch.no_grad()
def test_a_scorer_reads_the_new_tokens_alone(llava):
    """Attention of the new tokens' last row, shared out among the new tokens."""
    (first, second), cache = turns_of(llava), DynamicCache()
    whole = torch.cat([first["input_ids"], second["input_ids"]], dim=1)
    pixels = torch.cat([first["pixel_values"], second["pixel_values"]])
    full = llava.model(input_ids=whole, pixel_values=pixels, output_attentions=True)
    begin = first["input_ids"].shape[1]
    attention = full.attentions[0][0, :, -1, begin:]
    scores = (attention / attention.sum(dim=-1, keepdim=True)).mean(dim=0)
    visual = (second["input_ids"][0] == IMAGE).nonzero().flatten()
    best = visual[scores[visual].topk(9).indices].sort().values
    plan = Plan(visual_tokens=36, num_layers=4, steps=[Step(layer=0, keep=9, score="last-query")])
    reduction = Reduction(llava, plan)
    with attached(reduction) as model:
        model(**first, past_key_values=cache, use_cache=True)
        del second["attention_mask"]
        model(**second, past_key_values=cache, use_cache=True)
    held = reduction.decoding.traces[cache].stages[1].slots[0] - begin
    assert held[(held >= visual[0]) & (held <= visual[-1])].tolist() == best.tolist()
    others = full.attentions[0][0, :, -2, begin:].mean(dim=0)  # the control: another row
    assert visual[others[visual].topk(9).indices].sort().values.tolist() != best.tolist()


@torch.no_grad()
@pytest.mark.parametrize("build", [tiny_backbone, flash_like], ids=["sdpa", "flash"])
def test_a_batch_of_turns_is_its_samples(build):
    """Different lengths and numbers of pictures in both turns: padding stands between them."""
    llava = build("llava")
    turns = [
        [tiny_inputs(llava, texts=(text,), images=n, seed=7 * i + j) for j, (text, n) in pairs]
        for i, pairs in enumerate(
            [enumerate([(9, 1), (4, 2)]), enumerate([(5, 2), (8, 1)]), enumerate([(6, 1), (6, 1)])]
        )
    ]
    plan = Plan(
        visual_tokens=36,
        num_layers=4,
        steps=[Step(layer=-1, keep=24, score="dissimilarity"), Step(layer=1, keep=9)],
    )

    def talk(*both):
        cache, past, found = DynamicCache(), torch.zeros(len(both[0]["input_ids"]), 0).long(), []
        with reduced(llava, plan) as model:
            for turn in both:
                past = torch.cat([past, turn["attention_mask"]], dim=1)
                turn = {**turn, "attention_mask": past}
                turn["position_ids"] = positions(past)[:, -turn["input_ids"].shape[1] :]
                found = model(**turn, past_key_values=cache, use_cache=True).logits[:, -1]
        return found

    together = talk(*(collated([sample[i] for sample in turns]) for i in range(2)))
    for row, sample in zip(together, turns, strict=True):
        assert torch.allclose(row, talk(*sample)[0], atol=1e-4)


@torch.no_grad()
def test_generate_takes_a_new_picture(llava):
    (first, second), plan = turns_of(llava), chance(llava, 0, 1)
    found = {}
    for way in ("generate", "forward"):
        cache = DynamicCache()
        with reduced(llava, plan) as model:
            text = model.generate(
                **first, past_key_values=cache, max_new_tokens=2, do_sample=False, eos_token_id=None
            )
            ids = torch.cat([text, second["input_ids"]], dim=1)
            mask = torch.ones_like(ids)
            pixels = second["pixel_values"]
            if way == "generate":
                answer = model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    pixel_values=pixels,
                    past_key_values=cache,
                    max_new_tokens=1,
                    do_sample=False,
                    return_dict_in_generate=True,
                    output_logits=True,
                )
                found[way] = answer.logits[0]
            else:
                new = {"input_ids": ids[:, cache.get_seq_length() :], "pixel_values": pixels}
                output = model(**new, past_key_values=cache, use_cache=True)
                found[way] = output.logits[:, -1]
    assert torch.allclose(found["generate"], found["forward"], atol=1e-4)


@torch.no_grad()
def test_positions_that_transformers_does_not_make_are_asked_for(backbones):
    qwen = backbones["qwen2_vl"]
    first, second = turns_of(qwen)
    for given in (None, torch.arange(20, 20 + second["input_ids"].shape[1]).expand(3, 1, -1)):
        cache = DynamicCache()
        with reduced(qwen, chance(qwen, 0)) as model:
            model(**first, past_key_values=cache, use_cache=True)
            del second["attention_mask"]
            with pytest.raises(BackboneError, match="position_ids of the new image in three coord"):
                model(**second, position_ids=given, past_key_values=cache, use_cache=True)
            second["attention_mask"] = torch.ones_like(second["input_ids"])


def test_gradients_take_no_cache(llava):
    (first, second), cache = turns_of(llava), DynamicCache()
    theta = Theta.start(4, visual_tokens=36, budget=9)
    with reduced(llava, theta) as model:
        with torch.no_grad():
            model(**first, past_key_values=cache, use_cache=True)
        with pytest.raises(BackboneError, match="expected a pass without a cache where gradients"):
            model(**second, past_key_values=cache, use_cache=True)


@torch.no_grad()
def test_a_cache_of_another_block_is_refused(llava):
    (first, second), cache = turns_of(llava), DynamicCache()
    with reduced(llava, chance(llava, 0)) as model:
        model(**first, past_key_values=cache, use_cache=True)
    with (
        reduced(llava, chance(llava, 0)) as model,
        pytest.raises(BackboneError, match="expected a cache of this block"),
    ):
        model(**second, past_key_values=cache, use_cache=True)
