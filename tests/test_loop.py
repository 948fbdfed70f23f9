"""The search: what it finds, what it writes, and how it goes on after anything."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

import eos
from eos import ConfigError, DataError, EosError, Plan, SearchConfig, Theta
from eos.data.batches import Reader
from eos.data.samples import UnusableError
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.engine.relaxation import RelaxedTheta
from eos.models.processor import load_processor, place_inputs
from eos.searching import folder as folder_module
from eos.searching.folder import CHECKPOINT
from eos.searching.gradients import search_losses
from eos.searching.measure import sample_losses
from eos.searching.search import search as find

WORLD = WorldData(families=("presence", "digit"), size=50)
FILES = ("theta.json", "plan.json", "history.jsonl", CHECKPOINT, "config.yaml")


@pytest.fixture(scope="module")
def backbone(sibling):
    return eos.load_backbone(sibling)


def settings(**changes):
    small = {
        "method": "paper",
        "steps": 5,
        "batch": 2,
        "budget": 64,
        "lr": 0.05,
        "save_every": 2,
        "log_every": 1,
    }
    small |= {"validation": {"samples": 2}, "data": WORLD, "answers": "last"}
    small |= {"gate_temperature": (1.0, 4.0)}
    return SearchConfig(**{**small, **changes})


def searched(backbone, out, watch=None, data=WORLD, **changes):
    exam = WORLD.model_copy(update={"split": "validation"})
    return find(backbone, data, settings(**changes), validation=exam, out=out, watch=watch)


def same(first: Path, second: Path) -> bool:
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in FILES)


def history(out):
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


class CrashError(Exception):
    """Ends a run where it stands, as a kill would."""


def crash_at(turn):
    def watch(status):
        if status.done == turn:
            raise CrashError

    return watch


@pytest.fixture(scope="module")
def finished(backbone, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, searched(backbone, out)


def test_a_run_leaves_its_answer_and_its_state(backbone, finished):
    out, answer = finished
    assert {path.name for path in out.iterdir()} == {*FILES, "env.json"}
    assert answer.plan.expected.final_tokens == 64
    assert eos.Plan.load(out / "plan.json") == answer.plan
    assert repr(Theta.load(out / "theta.json")) == repr(answer.theta)
    assert answer.theta.gate_temperature == 4.0
    lines = history(out)
    assert [line["step"] for line in lines] == list(range(5))
    assert [line["gate_temperature"] for line in lines[:1]] == [1.0]
    assert set(lines[0]["loss"]) == {
        *("total", "cross_entropy", "align", "budget", "layers", "flops")
    }
    assert all(len(row) == 3 for row in lines[0]["theta"].values())
    assert lines[0]["theta"] != lines[-1]["theta"]
    settled = json.loads((out / "env.json").read_text())
    assert settled["seed"] == 42


def test_every_group_moves(backbone, finished):
    first, last = (history(finished[0])[i]["theta"] for i in (0, -1))
    assert all(first[group] != last[group] for group in first)


def test_a_finished_run_is_read_and_not_repeated(backbone, finished):
    out, answer = finished
    before = {name: (out / name).read_bytes() for name in FILES}

    def forbidden(status):
        raise AssertionError("a finished run has no steps")

    again = searched(backbone, out, watch=forbidden)
    assert again.gaps == answer.gaps
    assert before == {name: (out / name).read_bytes() for name in FILES}


def test_without_a_folder_nothing_is_kept(backbone, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    found = eos.search(backbone, WORLD, settings())  # of the world, the validation split is known
    assert repr(found.theta) == repr(finished[1].theta)
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(torch.rand(1), expected)  # nobody's random numbers were touched


@pytest.mark.parametrize("turn", [1, 2, 3, 5])
def test_a_crash_anywhere_changes_nothing(backbone, finished, tmp_path, turn):
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        searched(backbone, out, watch=crash_at(turn))
    assert not (out / "plan.json").exists()
    searched(backbone, out)
    assert same(out, finished[0])


def test_lost_moments_would_be_noticed(backbone, finished, tmp_path, monkeypatch):
    """The control of the test above: a state that forgets the optimiser ends elsewhere."""
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        searched(backbone, out, watch=crash_at(4))
    monkeypatch.setattr(folder_module, "MOMENTS", ("step",))
    with pytest.raises(KeyError):
        searched(backbone, out)
    monkeypatch.undo()
    tensors, note = folder_module.read_checkpoint(out / CHECKPOINT)
    zeroed = {k: torch.zeros_like(v) if "exp_avg" in k else v for k, v in tensors.items()}
    (out / CHECKPOINT).write_bytes(folder_module.save(zeroed, {"eos": json.dumps(note)}))
    searched(backbone, out)
    assert (out / "theta.json").read_bytes() != (finished[0] / "theta.json").read_bytes()


def test_torn_and_early_lines_are_dropped_and_lost_ones_refused(backbone, finished, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        searched(backbone, out, watch=crash_at(4))
    path = out / "history.jsonl"
    kept = path.read_text().splitlines(keepends=True)
    assert len(kept) == 2
    path.write_text("".join(kept) + json.dumps({"turn": 3}) + "\n" + '{"turn": 4, "sta')
    searched(backbone, out)
    assert same(out, finished[0])
    shutil.copytree(out, tmp_path / "lost")
    path = tmp_path / "lost" / "history.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ConfigError, match=r"expected 5 lines of the steps done .* found 4"):
        searched(backbone, tmp_path / "lost")


def test_control_c_saves_and_says_how_to_go_on(backbone, finished, tmp_path):
    out = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)

    def interrupt(status):
        if status.done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(EosError, match=r"stopped after 3 of 5 steps.*Rerun to resume"):
        searched(backbone, out, watch=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(history(out)) == 3
    searched(backbone, out)
    assert same(out, finished[0])


def test_a_second_control_c_ends_at_once(backbone, tmp_path):
    def impatient(status):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        searched(backbone, tmp_path / "run", watch=impatient)


def test_a_loss_that_is_no_number_stops_with_the_last_good_theta(sibling, finished, tmp_path):
    out, broken = tmp_path / "run", eos.load_backbone(sibling)
    weight = broken.model.lm_head.weight

    def spoil(status):
        if status.done == 3:
            weight.data[:] = torch.nan

    message = r"expected finite losses.*at step 3 in the batch (presence|digit)/train/0/\d+, "
    with pytest.raises(DataError, match=message):
        searched(broken, out, watch=spoil)
    theta = Theta.load(out / "theta.json")
    theta.gate_temperature = history(finished[0])[3]["gate_temperature"]
    expected = history(finished[0])[3]["theta"]
    assert {group: theta.value(group).tolist() for group in expected} == expected
    assert len(history(out)) == 3


def test_a_run_that_met_a_nan_goes_on_as_if_it_had_not(sibling, finished, tmp_path):
    out, broken = tmp_path / "run", eos.load_backbone(sibling)
    weight = broken.model.lm_head.weight
    sound = weight.detach().clone()

    def spoil(status):
        if status.done == 3:
            weight.data[:] = torch.nan

    with pytest.raises(DataError, match="expected finite losses"):
        searched(broken, out, watch=spoil)
    weight.data[:] = sound
    searched(broken, out)
    assert same(out, finished[0])


class Holes:
    """The world, some of whose samples cannot be used."""

    def __init__(self, every):
        self.world, self.every = open_source(WORLD), every

    def __len__(self):
        return len(self.world)

    def describe(self):
        """Say what this is."""
        return f"holes {self.every}"

    def name(self, index):
        """Name a sample."""
        return self.world.name(index)

    def sample(self, index):
        """Give a sample, or none."""
        if index % self.every == 0:
            raise UnusableError(f"{self.name(index)}: expected an image, found a hole")
        return self.world.sample(index)


def test_unusable_samples_are_named_and_too_many_stop(backbone, tmp_path):
    out = tmp_path / "few"
    searched(backbone, out, data=Holes(12), steps=8)
    lines = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
    assert 1 <= len(lines) <= 5
    assert all("found a hole" in line["reason"] for line in lines)
    with pytest.raises(DataError, match=r"at most 5% unusable samples, found \d+ of \d+; .*a hole"):
        searched(backbone, tmp_path / "many", data=Holes(2), steps=8)
    assert Theta.load(tmp_path / "many" / "theta.json")


def test_skipped_samples_are_not_doubled_by_a_crash(backbone, tmp_path):
    searched(backbone, tmp_path / "whole", data=Holes(8), steps=7)
    with pytest.raises(CrashError):
        searched(backbone, tmp_path / "torn", data=Holes(8), steps=7, watch=crash_at(6))
    searched(backbone, tmp_path / "torn", data=Holes(8), steps=7)
    names = [(tmp_path / name / "skipped.jsonl").read_text() for name in ("whole", "torn")]
    assert names[0] == names[1]
    assert same(tmp_path / "whole", tmp_path / "torn")


def test_another_search_in_the_same_folder_is_refused(backbone, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "run")
    with pytest.raises(ConfigError, match="expected seed 42, found 1"):
        searched(backbone, out, seed=1)
    with pytest.raises(ConfigError, match="2 problems"):
        searched(backbone, out, seed=1, lr=0.1)
    with pytest.raises(ConfigError, match="expected data 'world train"):
        searched(backbone, out, data=Holes(50))
    assert searched(backbone, out, save_every=7)  # how often it is saved may change


def test_a_folder_that_cannot_be_written_is_reported_first(backbone, tmp_path, monkeypatch):
    def forbidden(status):
        raise AssertionError("no step must run")

    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="cannot write"):
        searched(backbone, tmp_path / "file" / "run", watch=forbidden)
    assert (tmp_path / "file").read_text() == "mine"
    if os.geteuid() != 0:  # root writes everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(ConfigError, match="cannot write"):
            searched(backbone, tmp_path / "locked", watch=forbidden)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(ConfigError, match="MiB of free space"):
        searched(backbone, tmp_path / "full", watch=forbidden)


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(backbone, finished, tmp_path, monkeypatch):
    out, write = tmp_path / "run", folder_module.write_atomically

    def full(path, content):
        if Path(path).name == CHECKPOINT and (out / CHECKPOINT).exists():
            raise ConfigError(f"cannot write {path}: No space left on device")
        write(path, content)

    monkeypatch.setattr(folder_module, "write_atomically", full)
    with pytest.raises(ConfigError, match="No space left"):
        searched(backbone, out)
    monkeypatch.undo()
    searched(backbone, out)
    assert same(out, finished[0])


def test_a_checkpoint_of_something_else_is_refused(backbone, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="expected a checkpoint of a search"):
        searched(backbone, tmp_path / "run")


def test_starts_race_and_the_best_goes_on(backbone, tmp_path):
    race = {"starts": ["uniform", "prune", "merge"], "race": 0.4}
    answer = searched(backbone, tmp_path / "race", **race)
    lines = history(tmp_path / "race")
    assert [line["step"] for line in lines] == [0, 1, 0, 1, 0, 1, 2, 3, 4]
    assert [line["start"] for line in lines[:6:2]] == race["starts"]
    assert {line["start"] for line in lines[6:]} == {answer.start}
    _, note = folder_module.read_checkpoint(tmp_path / "race" / CHECKPOINT)
    assert race["starts"][note["losses"].index(min(note["losses"]))] == answer.start
    alone = searched(backbone, tmp_path / "alone", init=answer.start)
    assert repr(alone.theta) == repr(answer.theta)  # the race costs the winner nothing
    with pytest.raises(CrashError):
        searched(backbone, tmp_path / "torn", watch=crash_at(5), **race)
    searched(backbone, tmp_path / "torn", **race)
    assert same(tmp_path / "torn", tmp_path / "race")


def test_one_theta_for_many_budgets(backbone, tmp_path):
    answer = searched(backbone, tmp_path / "run", budgets=[192, 64, 16], budget=64)
    assert {line["budget"] for line in history(tmp_path / "run")} <= {192, 64, 16}
    assert len({line["budget"] for line in history(tmp_path / "run")}) > 1
    assert [gap.budget for gap in answer.gaps] == [192, 64, 16]
    assert answer.plan.expected.final_tokens == 64


def test_layers_and_groups_can_be_held(backbone, tmp_path):
    answer = searched(backbone, tmp_path / "run", layers=[1], fix_layers=True, fix={"rho": 0.0})
    assert [step.layer for step in answer.plan.steps] == [1]
    lines = history(tmp_path / "run")
    assert lines[-1]["theta"]["g"] == [0.0, 1.0, 0.0]
    assert lines[-1]["theta"]["rho"] == [0.0] * 3
    assert lines[-1]["theta"]["gamma"][1] != lines[0]["theta"]["gamma"][1]
    assert abs(answer.theta.expected_schedule()[-1].item() - 64) < 16
    # the only difference between Θ and the plan is then how the count is rounded
    assert abs(answer.gaps[0].gap.mean) < 1e-2


def test_the_input_site_is_searched_too(backbone, tmp_path):
    answer = searched(backbone, tmp_path / "run", layers=[-1], input_site=True, steps=3)
    assert answer.plan.steps[0].layer == -1
    assert answer.plan.steps[0].score == "dissimilarity"


def test_micro_batches_change_nothing_but_rounding(backbone, finished, tmp_path):
    searched(backbone, tmp_path / "run", micro_batch=1)
    for part, whole in zip(history(tmp_path / "run"), history(finished[0]), strict=True):
        assert part["loss"] == pytest.approx(whole["loss"], abs=1e-5)
        for group, values in whole["theta"].items():
            assert part["theta"][group] == pytest.approx(values, abs=1e-5)


def test_the_gap_starts_at_what_the_search_minimises(sibling, backbone, finished):
    """Θ's own pass, deployed, has the cross-entropy that the search sees."""
    theta, config = finished[1].theta, settings()
    reader = Reader(open_source(WORLD), load_processor(sibling), "last")
    batch = reader.first(2, at_once=2)
    inputs, labels = reader.inputs(batch.answered)
    inputs = place_inputs(backbone.model, inputs)
    given = {"inputs": inputs, "labels": labels, "objective": config.objective, "budget": 64}
    found = search_losses(backbone, RelaxedTheta(theta), **given)
    plans = {"own": Plan.from_theta(theta, every_layer=True)}
    deployed = sample_losses(backbone, plans, reader=reader, batch=batch)["own"]
    assert sum(deployed) / 2 == pytest.approx(found.cross_entropy.item(), abs=1e-5)
    gap = finished[1].gaps[0]
    assert gap.gap.mean == pytest.approx(gap.plan.mean - gap.theta.mean, abs=2e-6)
    assert gap.samples == 2


def test_more_processes_than_samples_are_refused(backbone):
    from eos.runs.processes import Processes

    processes = Processes()
    processes.count = 3
    with pytest.raises(ConfigError, match="a batch of at least 3"):
        processes.slots(2)


@pytest.mark.parametrize("option", ["deepspeed", "megatron_lm"])
def test_launchers_that_would_take_the_model_over_are_refused(monkeypatch, option):
    from eos.runs.processes import Processes

    monkeypatch.setenv(f"ACCELERATE_USE_{option.upper()}", "false")
    assert Processes().count == 1
    monkeypatch.setenv(f"ACCELERATE_USE_{option.upper()}", "true")
    with pytest.raises(ConfigError, match=f"found --use_{option}.*launch with --use_fsdp"):
        Processes()


def test_a_sharded_backbone_wants_even_batches_and_no_device_map(backbone):
    from eos.commands.search import load_placed
    from eos.runs.processes import Processes

    processes = Processes()
    processes.count = 2
    assert list(processes.slots(3)) == [0, 2]  # with whole backbones they may be uneven
    processes.sharding = True
    assert list(processes.slots(4)) == [0, 2]
    with pytest.raises(ConfigError, match=r"2 processes share evenly.*found 3"):
        processes.slots(3)
    with pytest.raises(ConfigError, match=r"expected no device_map with --use_fsdp.*'auto'"):
        load_placed(SearchConfig(device_map="auto"), processes)
