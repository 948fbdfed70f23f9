"""The reduced model as a user meets it: decoding, conversations, refusals. On the LLaVA family."""

import threading

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from eos import BackboneError, ConfigError, Operator, Plan, PlanError, Step, load_backbone, reduced
from eos.models.devices import default_device
from eos.testing.tiny import IMAGE, tiny_backbone, tiny_inputs
from tests.test_contract import decoded, gap, pyramid


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone("llava")


def plan(*steps):
    return Plan(visual_tokens=36, num_layers=4, steps=steps)


def test_loading_freezes_and_passes_through(backbone):
    assert not any(p.requires_grad for p in backbone.model.parameters())
    assert not backbone.model.training
    assert load_backbone(backbone) is backbone
    assert load_backbone(backbone.model).model is backbone.model


def test_loading_from_a_folder(backbone, tmp_path):
    backbone.model.save_pretrained(tmp_path)
    again = load_backbone(tmp_path, dtype=torch.float64, attn_implementation="eager")
    assert again.model.dtype == torch.float64
    assert again.decoder.config._attn_implementation == "eager"
    assert again.dims == backbone.dims


def test_the_default_device_is_the_accelerator_that_torch_sees(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda", 1))
    assert default_device() == torch.device("cuda", 1)


def placed(folder, **options):
    model = load_backbone(folder, **options).model
    (found,) = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    return found


def test_models_are_loaded_where_torch_computes(tmp_path, monkeypatch):
    """The meta device plays the accelerator: weights go there, in the checkpoint's own dtype."""
    tiny_backbone("llava").model.to(torch.float64).save_pretrained(tmp_path)
    monkeypatch.setattr("eos.models.backbone.default_device", lambda: torch.device("cpu"))
    assert placed(tmp_path) == placed(tmp_path, device_map="auto") == ("cpu", torch.float32)
    assert placed(tmp_path, dtype="auto") == ("cpu", torch.float64)
    monkeypatch.setattr("eos.models.backbone.default_device", lambda: torch.device("meta"))
    assert placed(tmp_path) == ("meta", torch.float64)
    assert placed(tmp_path, dtype=torch.float16) == ("meta", torch.float16)
    for choice in ("device", "device_map"):
        assert placed(tmp_path, **{choice: "cpu"}) == ("cpu", torch.float32)
    with pytest.raises(ConfigError, match="a device or a device_map; found both, 'cpu' and 'auto'"):
        load_backbone(tmp_path, device="cpu", device_map="auto")


def test_what_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(BackboneError, match=r"expected a model id or a folder with a config.json"):
        load_backbone(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(BackboneError, match=r"expected a model of type llava, .*found 'gpt2'"):
        load_backbone(tmp_path)


@torch.no_grad()
@pytest.mark.parametrize("use_cache", [True, False])
def test_beams_are_scored_as_their_text_is(backbone, use_cache):
    inputs = tiny_inputs(backbone, texts=(7, 4))
    found = pyramid(backbone, inputs)
    options = {"num_beams": 3, "output_scores": True, "use_cache": use_cache}
    beams = decoded(backbone, found, inputs, **options)
    ones = torch.ones(2, 4, dtype=torch.long)
    labels = torch.full_like(beams.sequences, -100)
    labels[:, -4:] = beams.sequences[:, -4:]
    whole = {
        **inputs,
        "input_ids": beams.sequences,
        "attention_mask": torch.cat([inputs["attention_mask"], ones], dim=1),
    }
    with reduced(backbone, found) as model:
        logits = model(
            **whole, labels=labels, position_ids=positions(whole["attention_mask"])
        ).logits
    likely = (
        logits[:, -5:-1].log_softmax(dim=-1).gather(2, beams.sequences[:, -4:, None]).squeeze(2)
    )
    # beam search divides by the generated length
    assert torch.allclose(likely.sum(dim=1) / 4, beams.sequences_scores, atol=1e-4)


@torch.no_grad()
def test_sampling_follows_its_seed(backbone):
    inputs = tiny_inputs(backbone)
    texts = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        with reduced(backbone, pyramid(backbone, inputs)) as model:
            texts.append(
                model.generate(**inputs, max_new_tokens=12, do_sample=True, eos_token_id=None)
            )
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


@torch.no_grad()
def test_streaming(backbone):
    class Streamer:
        def __init__(self):
            self.received = []

        def put(self, value):
            self.received += value.flatten().tolist()

        def end(self):
            self.received.append("end")

    inputs, streamer = tiny_inputs(backbone), Streamer()
    with reduced(backbone, pyramid(backbone, inputs)) as model:
        text = model.generate(
            **inputs, max_new_tokens=4, do_sample=False, eos_token_id=None, streamer=streamer
        )
    assert streamer.received == [*text[0].tolist(), "end"]


EARLY = [Step(layer=-1, keep=9, score="dissimilarity"), Step(layer=1, keep=5)]


@torch.no_grad()
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("texts", [(6,), (7, 4)])
def test_a_second_turn_on_the_same_cache(backbone, texts, early):
    inputs = tiny_inputs(backbone, texts=texts)
    found = plan(*EARLY) if early else pyramid(backbone, inputs)
    cache = DynamicCache()
    more = torch.randint(6, 90, (len(texts), 5), generator=torch.Generator().manual_seed(3))
    longer = torch.cat([inputs["attention_mask"], torch.ones_like(more)], dim=1)
    whole = {
        **inputs,
        "input_ids": torch.cat([inputs["input_ids"], more], dim=1),
        "attention_mask": longer,
    }
    labels = torch.full_like(whole["input_ids"], -100)
    labels[:, -5:] = more  # the second turn does not choose the first one's tokens
    with reduced(backbone, found) as model:
        model(
            **inputs,
            past_key_values=cache,
            use_cache=True,
            position_ids=positions(inputs["attention_mask"]),
        )
        turn = model(
            input_ids=more,
            attention_mask=longer,
            position_ids=positions(longer)[:, -5:],
            past_key_values=cache,
            use_cache=True,
        ).logits
        at_once = model(**whole, labels=labels, position_ids=positions(longer)).logits[:, -5:]
    assert torch.allclose(turn, at_once, atol=1e-4)


def positions(mask):
    return (mask.cumsum(dim=1) - 1).clamp_min(0)


@torch.no_grad()
def test_hidden_states_have_the_lengths_of_the_plan(backbone):
    inputs = tiny_inputs(backbone)
    found = pyramid(backbone, inputs)
    with reduced(backbone, found) as model:
        states = model(**inputs, output_hidden_states=True).hidden_states
    text = inputs["input_ids"].shape[1] - 36
    # what entered layer 0, what left layers 0-2, and the final states at full length again
    assert [x.shape[1] - text for x in states] == [36, 36, *found.schedule[1:3], 36]


@torch.no_grad()
def test_logits_of_a_dropped_place_are_those_of_the_last_kept_token(backbone):
    inputs = tiny_inputs(backbone)
    with reduced(backbone, plan(Step(layer=0, keep=1, score="random"))) as model:
        logits = model(**inputs).logits[0]
    visual = (inputs["input_ids"][0] == IMAGE).nonzero().flatten()
    assert logits.unique(dim=0).shape[0] == len(logits) - 35
    assert torch.equal(logits[visual[-1]], logits[visual[-2]])


@torch.no_grad()
@pytest.mark.parametrize(
    "score", ["text-raters", "all-text", "last-query", "next-last-query", "key-norm", "random"]
)
def test_every_scorer_without_vision_works_in_the_decoder(backbone, score):
    inputs = tiny_inputs(backbone, texts=(7, 4))
    eager = tiny_backbone("llava", attn_implementation="eager")
    steps = plan(Step(layer=0, keep=20, score=score), Step(layer=2, keep=6, score=score))
    left, right = decoded(backbone, steps, inputs), decoded(eager, steps, inputs)
    assert gap(left.logits, right.logits) <= 1e-4


@torch.no_grad()
def test_before_the_decoder_every_layer_is_shorter(backbone):
    inputs = tiny_inputs(backbone, texts=(7, 4))
    early = plan(Step(layer=-1, keep=10, score="dissimilarity"), Step(layer=1, keep=5))
    cached = decoded(backbone, early, inputs)
    text = inputs["input_ids"].shape[1] - 36 + 3
    assert [x.get_seq_length() - text for x in cached.past_key_values.layers] == [10, 10, 5, 5]
    assert gap(cached.logits, decoded(backbone, early, inputs, use_cache=False).logits) <= 1e-4


@torch.no_grad()
def test_reindexed_positions_are_contiguous(backbone):
    inputs = tiny_inputs(backbone, texts=(7, 4))
    keeping = plan(Step(layer=0, keep=9))
    reindexing = plan(Step(layer=0, keep=9, positions="reindex"))
    cached = decoded(backbone, reindexing, inputs)
    assert gap(cached.logits, decoded(backbone, reindexing, inputs, use_cache=False).logits) <= 1e-4
    assert gap(cached.logits, decoded(backbone, keeping, inputs).logits) > 1e-3


@torch.no_grad()
def test_gradients_reach_what_asks_for_them(backbone):
    inputs = tiny_inputs(backbone)
    pixels = inputs["pixel_values"].clone().requires_grad_()
    merging = plan(Step(layer=1, keep=6, operator=Operator(gamma=1.0, tau=0.5, theta=-1.0)))
    with torch.enable_grad(), reduced(backbone, merging) as model:
        model(**{**inputs, "pixel_values": pixels}).logits[:, -1].sum().backward()
    assert pixels.grad.abs().sum() > 0


def flash_like(kind):
    """Build a model whose attention is given FlashAttention's 2-D masks, but needs no GPU."""

    def thin_attention(module, query, key, value, mask, scaling, **options):
        groups = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        new, old = query.shape[2], key.shape[2]
        allowed = torch.ones(new, old, dtype=torch.bool)
        allowed = allowed.tril(old - new) if module.is_causal else allowed
        if mask is not None:
            assert mask.shape == (len(query), old)
            allowed = allowed & mask[:, None, None].bool()
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, allowed, scale=scaling
        )
        return out.transpose(1, 2), None

    AttentionInterface.register("thin_attention", thin_attention)
    masks = ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]
    AttentionMaskInterface.register("thin_attention", masks)
    return tiny_backbone(kind, attn_implementation="thin_attention")


@torch.no_grad()
def test_padding_masks_of_flash_attention_are_cut_too(backbone):
    flash = flash_like("llava")
    inputs = tiny_inputs(backbone, texts=(7, 4))
    for found in (pyramid(backbone, inputs), plan(Step(layer=-1, keep=9, score="dissimilarity"))):
        left, right = decoded(backbone, found, inputs), decoded(flash, found, inputs)
        assert gap(left.logits, right.logits) <= 1e-4


def test_nesting_is_refused_and_leaves_the_outer_block_working(backbone):
    inputs = tiny_inputs(backbone)
    with reduced(backbone, plan(Step(layer=0, keep=6))) as model:
        with (
            pytest.raises(BackboneError, match="already being reduced by this thread"),
            reduced(backbone, plan(Step(layer=0, keep=6))),
        ):
            pass
        model(**inputs)


def test_another_thread_is_refused(backbone):
    inputs, problems = tiny_inputs(backbone), []

    def elsewhere(action):
        def run():
            try:
                action()
            except BackboneError as failure:
                problems.append(str(failure))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def enter():
        with reduced(backbone, plan()):
            pass

    with reduced(backbone, plan(Step(layer=0, keep=6))) as model:
        elsewhere(lambda: model(**inputs))
        elsewhere(enter)
    assert "call it only from the thread that entered" in problems[0]
    assert "already being reduced in another thread" in problems[1]
    elsewhere(enter)  # free again
    assert len(problems) == 2


@torch.no_grad()
def refused(backbone, found, inputs, message, error=BackboneError, **options):
    with pytest.raises(error, match=message), reduced(backbone, found) as model:
        model.generate(**inputs, max_new_tokens=2, do_sample=False, **options)


def test_what_cannot_be_reduced_is_refused_with_a_sentence(backbone):
    inputs = tiny_inputs(backbone, texts=(7, 4))
    found = plan(Step(layer=0, keep=6))
    flipped = {
        **inputs,
        "input_ids": inputs["input_ids"].clone(),
        "attention_mask": inputs["attention_mask"].flip(1),
    }
    refused(backbone, found, flipped, "expected a left-padded batch; found padding on the right")
    refused(backbone, found, inputs, "expected a dynamic cache", cache_implementation="static")
    other = Plan(visual_tokens=40, num_layers=4, steps=[Step(layer=0, keep=6)])
    refused(backbone, other, inputs, "expected a plan for the 36 visual tokens", error=PlanError)
    deep = Plan(visual_tokens=36, num_layers=32, steps=[Step(layer=20, keep=6)])
    refused(
        backbone,
        deep,
        inputs,
        "expected a plan for 4 decoder layers.*found one for 32",
        error=PlanError,
    )
    early = plan(Step(layer=-1, keep=6))
    refused(backbone, early, inputs, "'text-raters' at layer -1", error=PlanError)


@torch.no_grad()
def test_embeddings_without_ids_are_refused(backbone):
    embeddings = torch.randn(1, 8, 64)
    with (
        pytest.raises(BackboneError, match="expected input_ids"),
        reduced(backbone, plan()) as model,
    ):
        model(inputs_embeds=embeddings)


def test_spatial_positions_cannot_be_reindexed():
    qwen = tiny_backbone("qwen2_vl")
    found = Plan(visual_tokens=9, num_layers=4, steps=[Step(layer=0, keep=6, positions="reindex")])
    with pytest.raises(PlanError, match="expected positions 'keep'"), reduced(qwen, found):
        pass


def test_a_layer_without_the_expected_keywords_is_named(backbone):
    message = r"transformers \d.* does not give past_key_values"
    with (
        reduced(backbone, plan(Step(layer=0, keep=6))),
        pytest.raises(BackboneError, match=message),
    ):
        backbone.layers[0](torch.zeros(1, 3, 64), attention_mask=None, position_embeddings=None)
