"""A small reproduction folder of the miniature, for tests of what reads one.

Real answers to few questions, real searches of few steps; nothing in it decides anything.
"""

from pathlib import Path

import eos
from eos.evaluation.answering import Answerer
from eos.evaluation.evaluate import evaluate
from eos.evaluation.reproduction import Programme
from eos.evaluation.studies import Evaluated, RowSpec, make_study
from eos.evaluation.tasks import find_task
from eos.evaluation.verification import Check, StandIn, Verification
from eos.programme.examples import make_examples
from eos.programme.trajectory import read_trajectory
from eos.searching.curves import Profile
from eos.searching.files import read_config
from eos.space.searched import load_searched, searched
from eos.version import __version__

FAMILIES = ("counting", "presence")
BUDGETS = (64, 16)
SHORT = (
    "steps=3",
    "batch=1",
    "micro_batch=1",
    "validation.samples=2",
    "objective.align_layers=[4]",
)
PRESETS = ("fastv", "sparsevlm-v2", "tome", "even")
EOS = "eos-miniature"


def main_rows() -> list[RowSpec]:
    """Rows of the main table: a few presets and the packaged plans at two budgets."""
    rows = [
        RowSpec(f"{name}@{budget}", f"{name}@{budget}", name, factors={"budget": budget})
        for budget in BUDGETS
        for name in PRESETS
    ]
    found = [
        RowSpec(
            f"eos@{budget}", f"{EOS}@{budget}", "eos", searched=True, factors={"budget": budget}
        )
        for budget in BUDGETS
    ]
    return [*found, *rows]


def make_sample(out: Path, *, limit: int = 2) -> Path:
    """Fill a folder as `eos reproduce` does, with a main study of two families."""
    backbone = eos.load_backbone("miniature")
    specs = [f"{name}@64,16" for name in (EOS, *PRESETS)]
    folders = [out / "eval" / family for family in FAMILIES]
    for family, folder in zip(FAMILIES, folders, strict=True):
        evaluate(backbone, specs, out=folder, task=f"mini:{family}", limit=limit, seed=1)
    titles = {"title": "Main comparison", "labels": ["tab:main_retainsweep"]}
    commands = ["eos reproduce --out results"]
    study = make_study(folders, main_rows(), name="main", **titles, commands=commands)
    study.save(out / "studies" / "main.json")
    plans = {n: (f"eos@{n}", load_searched(EOS, n)) for n in BUDGETS}
    for budget, (_, plan) in plans.items():
        plan.save(out / "plans" / f"eos-1@{budget}.json")
    answerer = Answerer(backbone, eos.load_processor("miniature"))
    task = find_task(f"mini:{','.join(FAMILIES)}")
    make_examples(answerer, task, plans, split="test", seed=1, count=1).save(out / "examples.json")
    config = read_config("paper-miniature", SHORT)
    eos.search(backbone, config.data, config, out=out / "searches" / "descent")
    named = {budget: plan for budget, (_, plan) in plans.items()}
    course = read_trajectory(out / "searches" / "descent", named, searches=("descent", EOS))
    course.save(out / "trajectory.json")
    Profile.load(searched()[EOS][64].parent / "profile.json").save(out / "profile.json")
    checks = [
        Check(corner=corner, dtype="float32", cases=1, discrepancy=1e-7, tolerance=2e-6)
        for corner in ("prune", "merge", "pool", "reweight")
    ]
    stand_in = StandIn(shape=(8, 16, 64), seeds=10, share_above=0.2, worst=0.01)
    Verification(listing=checks, limits=checks, near_ties=0, stand_ins=[stand_in]).save(
        out / "verify.json"
    )
    Programme(
        backbone=study.backbone,
        fingerprint=study.fingerprint,
        version=__version__,
        quick=True,
        environment=Evaluated.load(folders[0]).environment,
        commands=commands,
        settings={"limit": limit, "budgets": list(BUDGETS)},
        pieces=[],
    ).save(out / "programme.json")
    return out
