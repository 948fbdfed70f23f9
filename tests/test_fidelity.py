"""Gradient fidelity: the statistics by hand, surrogates against differences on a small model."""

import json
from random import Random

import pytest

import eos
from eos import cli
from eos.data.batches import Reader
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.engine.relaxation import Relaxation
from eos.errors import BackboneError, ConfigError
from eos.estimates import Estimate
from eos.evaluation.agreement import (
    agreement,
    pooled,
    quantiles,
    rank_correlation,
    rank_error,
    total_error,
)
from eos.evaluation.fidelity import SLOPE_METHODS, Fidelity, measure_fidelity
from eos.evaluation.slopes import STEP, Measured
from eos.models.memory import remembering
from eos.models.processor import load_processor
from eos.report.fidelity import markdown
from eos.searching.measure import answer_losses


def estimates(*means, stderr=0.1):
    return [Estimate(mean=mean, stderr=stderr) for mean in means]


def test_rank_correlation_by_hand():
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert rank_correlation([5, 5, 7], [1, 2, 3]) == pytest.approx(0.75**0.5)  # ties share a rank
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0.0
    assert rank_correlation([1, 2, 3], [1e9, 1e8, 1e7]) == -1.0


def test_agreement_by_hand():
    found = agreement(estimates(1, -2, 3, 0.5), estimates(0.9, -1, -0.15, 0.4))
    assert found.signs == 0.75
    assert found.certain_signs == 1.0  # the third layer's difference is within its noise
    assert found.rank == pytest.approx(0.4)  # ranks 3 1 4 2 and 4 1 2 3: 1 - 6 * 6 / (4 * 15)
    assert found.total == pytest.approx(2.5 / 0.15, abs=1e-4)
    unsure = agreement(estimates(1, 2), estimates(0.1, 0.2))
    assert unsure.certain_signs is None
    assert agreement(estimates(1, 2), estimates(1, -1)).total is None  # nothing to divide by


def test_pooled_sizes_by_hand():
    differences = [*estimates(1, 2, -4, 1), *estimates(0.1)]  # the last is within its noise
    found = pooled(estimates(0.5, 2, -8, -3, 70), differences, passes=3, rank_stderr=0.2)
    assert (found.passes, found.certain, found.wrong, found.rank_stderr) == (3, 4, 0.25, 0.2)
    # of 1/2, 1 and 2: logarithms are interpolated, at 0.16 * 2 of the way from first to second
    assert found.ratio == pytest.approx(1.0)
    assert found.ratio_low == pytest.approx(0.5 * 2**0.32, abs=1e-4)
    assert found.ratio_high == pytest.approx(2 / 2**0.32, abs=1e-4)
    assert found.rank == pytest.approx(0.4, abs=0.2)
    # the control: sizes that are twice as large say so, with the same order
    twice = pooled(estimates(1, 4, -16, -6, 140), differences, passes=3)
    assert twice.ratio == pytest.approx(2 * found.ratio)
    assert twice.rank == found.rank


def test_without_certain_cells_sizes_are_not_known():
    found = pooled(estimates(1, 2), estimates(0.1, 0.2), passes=2)
    assert (found.certain, found.wrong, found.ratio, found.ratio_low) == (0, None, None, None)
    against = pooled(estimates(-1, -2), estimates(1, 2), passes=2)
    assert (against.wrong, against.ratio, against.rank) == (1.0, None, -1.0)


def test_quantiles_are_those_of_logarithms():
    low, middle, high = quantiles([0.01, 1.0, 100.0])
    assert middle == pytest.approx(1.0)
    assert low * high == pytest.approx(1.0)
    assert quantiles([3.0]) == pytest.approx([3.0] * 3)


def test_the_noise_of_a_rank_correlation():
    quiet = [[1.0, 2.0, 3.0, 4.0]] * 96
    assert rank_error(quiet, quiet, [2] * 96) == 0.0
    chance = Random(1)
    noisy = [[x + chance.gauss(0, 4) for x in piece] for piece in quiet]
    few, many = (rank_error(noisy[:n], quiet[:n], [2] * n) for n in (6, 96))
    assert 0.01 < many < few / 2
    assert rank_error(quiet[:1], quiet[:1], [2]) == 0.0  # of one piece nothing is known


def test_the_noise_of_a_ratio_of_sums():
    quiet = [[1.0, 3.0]] * 100
    assert total_error([[2.0, 6.0]] * 100, quiet, [2] * 100) == 0.0
    chance = Random(1)
    noisy = [[x + chance.gauss(0, 2) for x in piece] for piece in quiet]
    # a sum of two, over a hundred pieces, relative to 4
    assert total_error(noisy, quiet, [2] * 100) == pytest.approx(2 * 2**0.5 / 10 / 4, rel=0.25)
    assert total_error(noisy[:1], quiet[:1], [2]) == 0.0
    assert total_error(quiet, [[1.0, -1.0], *quiet[1:]], [2] * 100) < 0.1  # a sum of 0 is no harm


@pytest.fixture(scope="module")
def measured(sibling):
    backbone = eos.load_backbone(sibling)
    source = open_source(WorldData(split="validation", families=("presence", "digit")))
    reader = Reader(source, load_processor(sibling), "last")
    methods = {
        "band": Relaxation(selection="marginal", through="logits", band=0.1),
        "states": Relaxation(selection="paper", through="states"),
        "soft": Relaxation(selection="rank", boundary="soft"),
        "as the reference": Measured(STEP),
        "measured": Measured(),
    }
    return measure_fidelity(
        backbone,
        reader=reader,
        batch=reader.first(12, at_once=3),
        fractions=[0.5, 0.2],
        methods=methods,
    )


def test_every_layer_but_the_last_is_measured(measured):
    assert measured.layers == [0, 1]
    assert [level.keep for level in measured.levels] == [288, 115]
    assert [level.step for level in measured.levels] == [29, 12]
    for level in measured.levels:
        assert len(level.difference) == 2
        assert all(x.stderr > 0 for x in level.difference)
        counts = {name: len(own.gradient) for name, own in level.methods.items()}
        assert counts == dict.fromkeys(level.methods, 2)
    assert set(measured.pooled) == {"band", "states", "soft", "as the reference", "measured"}


def distance(level, method):
    """How far a surrogate is from the differences, relative to them."""
    pairs = zip(level.methods[method].gradient, level.difference, strict=True)
    missed = sum(abs(surrogate.mean - true.mean) for surrogate, true in pairs)
    return missed / sum(abs(true.mean) for true in level.difference)


def test_the_surrogate_has_the_size_of_the_difference(measured):
    """Random weights: little depends on which tokens are kept, so sizes can agree, too."""
    for level in measured.levels:
        assert distance(level, "band") < 0.6
        assert distance(level, "soft") < 0.6
        assert distance(level, "states") > 1  # the control: on states, it says something else


def test_a_measured_slope_is_the_difference_in_its_own_steps(measured):
    for level in measured.levels:
        assert distance(level, "as the reference") < 1e-3  # but for rounding
        assert 1e-2 < distance(level, "measured") < 0.6  # other steps, nearly the same slope


def test_pooled_sizes_are_those_of_all_levels(measured):
    for name, own in measured.pooled.items():
        assert own.certain == sum(level.certain for level in measured.levels)
        assert own.passes == (3 if name in ("band", "states", "soft") else 2)
    exact = measured.pooled["as the reference"]
    assert (exact.rank, exact.rank_stderr, exact.wrong) == (1.0, 0.0, 0.0)
    assert exact.ratio == pytest.approx(1.0, abs=1e-3)
    totals = [level.methods["as the reference"].total for level in measured.levels]
    assert totals == pytest.approx([1, 1], abs=1e-3)
    assert measured.pooled["states"].ratio != pytest.approx(1.0, abs=0.3)  # the control


def test_steps_stay_within_the_tokens(sibling):
    backbone = eos.load_backbone(sibling)
    reader = Reader(open_source(WorldData(split="validation")), load_processor(sibling), "last")
    batch = reader.first(2, at_once=1)
    found = measure_fidelity(
        backbone, reader=reader, batch=batch, fractions=[0.98], methods={"wide": Measured(0.5)}
    )
    (level,) = found.levels
    assert level.keep + level.step > found.visual_tokens
    assert all(abs(x.mean) < 100 for x in level.methods["wide"].gradient)
    with pytest.raises(ConfigError, match="expected a step between 0 and 1, found 1"):
        Measured(1.0)


def test_memory_changes_no_slope(sibling):
    backbone = eos.load_backbone(sibling)
    reader = Reader(open_source(WorldData(split="validation")), load_processor(sibling), "last")
    inputs, labels = reader.inputs(reader.first(2, at_once=2).answered)
    plan = eos.Plan(visual_tokens=576, num_layers=3, steps=[eos.Step(layer=1, keep=100)])

    def losses():
        return answer_losses(backbone, plan, inputs=inputs, labels=labels)

    alone, ran = losses(), []
    with remembering(backbone, inputs) as memory:
        hooks = [
            layer.self_attn.register_forward_pre_hook(lambda *_, i=index: ran.append(i))
            for index, layer in enumerate(backbone.layers)
        ]
        assert losses() == pytest.approx(alone, abs=1e-6)
        assert ran == [0, 1, 2]  # the control: nothing was said to be remembered
        memory.until = 1
        assert losses() == pytest.approx(alone, abs=1e-6)
        assert ran == [0, 1, 2, 2]
        memory.until = 2
        with pytest.raises(BackboneError, match="expected nothing reduced before layer 2"):
            losses()
    for hook in hooks:
        hook.remove()
    assert not any("forward" in vars(layer) for layer in backbone.layers)
    assert "get_image_features" not in vars(backbone.multimodal)


def test_an_ended_measurement_goes_on(sibling, tmp_path, capsys):
    command = ["fidelity", "--backbone", str(sibling), "--batch-size", "2", "--fractions", "0.2"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert cli.main([*command, "--samples", "4", "--out", str(whole)]) == 0
    notes = parts / "slopes.jsonl"
    first = "".join((whole / "slopes.jsonl").read_text().splitlines(keepends=True)[:2])
    parts.mkdir()
    notes.write_text(first + '{"samples": 2, "diff')  # ended while it was written
    assert cli.main([*command, "--samples", "4", "--out", str(parts)]) == 0
    assert notes.read_text().startswith(first)
    for name in ("slopes.jsonl", "fidelity.json", "fidelity.md"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    odd = tmp_path / "odd"  # a last piece that is not whole is measured again with its neighbour
    assert cli.main([*command, "--samples", "3", "--out", str(odd)]) == 0
    assert Fidelity.load(odd / "fidelity.json").samples == 3
    assert cli.main([*command, "--samples", "4", "--out", str(odd)]) == 0
    assert (odd / "fidelity.json").read_bytes() == (whole / "fidelity.json").read_bytes()
    capsys.readouterr()
    assert cli.main([*command, "--seed", "1", "--samples", "4", "--out", str(parts)]) == 1
    assert "Use another folder" in capsys.readouterr().err
    assert (parts / "slopes.jsonl").read_bytes() == (whole / "slopes.jsonl").read_bytes()


def test_the_command_writes_json_and_markdown(sibling, tmp_path, capsys):
    command = ["fidelity", "--backbone", str(sibling), "--samples", "2", "--batch-size", "1"]
    assert cli.main([*command, "--fractions", "0.5", "--out", str(tmp_path)]) == 0
    assert "rank correlation" in capsys.readouterr().out
    shown = (tmp_path / "fidelity.md").read_text(encoding="utf-8")
    assert all(f"| {name} | 0.5 (288 ± 29) |" in shown for name in SLOPE_METHODS)
    written = Fidelity.load(tmp_path / "fidelity.json")
    assert written.samples == 2
    sizes = shown.split("Sizes, all layers")[1]
    assert all(f"| {name} | {own.passes} |" in sizes for name, own in written.pooled.items())
    assert set(written.pooled) == set(SLOPE_METHODS)
    before = json.loads((tmp_path / "fidelity.json").read_text())
    del before["pooled"]  # as files were before sizes were measured
    assert "Sizes" not in markdown(Fidelity.model_validate(before))
    assert cli.main(["validate", str(tmp_path / "fidelity.json")]) == 0
    assert cli.main([*command, "--fractions", "2", "--out", str(tmp_path / "x")]) == 1
    assert not (tmp_path / "x").exists()
    assert json.loads((tmp_path / "fidelity.json").read_text())["schema"] == "eos.fidelity/1"


def test_one_method_alone_measures_what_it_does_among_all(sibling, tmp_path, capsys):
    command = ["fidelity", "--backbone", str(sibling), "--samples", "2", "--batch-size", "1"]
    command += ["--fractions", "0.5"]
    assert cli.main([*command, "--method", "measured", "--out", str(tmp_path / "one")]) == 0
    two = ["--method", "measured", "--method", "rank, logits", "--out", str(tmp_path / "two")]
    assert cli.main([*command, *two]) == 0
    one, both = (Fidelity.load(tmp_path / name / "fidelity.json") for name in ("one", "two"))
    assert set(one.pooled) == {"measured"}
    assert set(both.pooled) == {"measured", "rank, logits"}
    assert one.pooled["measured"] == both.pooled["measured"] != both.pooled["rank, logits"]
    assert cli.main([*command, "--method", "rank", "--out", str(tmp_path / "x")]) == 1
    assert "found 'rank'" in capsys.readouterr().err
