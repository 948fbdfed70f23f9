"""Small reproduction folders with made-up answers, for tests of tables and figures."""

import random
from base64 import b64encode
from io import BytesIO
from pathlib import Path

from PIL import Image

from eos.evaluation.reproduction import Examples, Programme, Trajectory
from eos.evaluation.results import FamilyInfo, make_row
from eos.evaluation.study import Study, StudyRow
from eos.evaluation.verification import Check, StandIn, Verification
from eos.sizes import Expected

LAYERS, TOKENS = 12, 16
FAMILIES = {"presence": "POPE", "attribute": "MME", "followup": "MMBench"}
BUDGETS = (8, 4, 2)
OMEGA = {"gamma": 0.5, "tau": 0.2, "theta": -0.9, "rho": 0.0, "nu": 0.0}


def infos(n, families=FAMILIES):
    names = list(families)
    return {
        name: FamilyInfo(
            group="prior" if place < 2 else "extended", imitates=families[name], n=n, chance=25.0
        )
        for place, name in enumerate(names)
    }


def cost(final, flops=0.5):
    return Expected(
        final_tokens=final,
        mean_tokens=final + 2.0,
        flops_ratio=flops,
        kv_bytes_ratio=flops,
        text_tokens=4,
    )


def plan(layers, counts, *, flops=0.5, omegas=None):
    omegas = omegas or [OMEGA] * len(layers)
    steps = [
        {
            "layer": layer,
            "keep": keep,
            "score": "text-raters",
            "positions": "keep",
            "operator": {"kind": "unified", **omega, "norm": "token"},
        }
        for layer, keep, omega in zip(layers, counts, omegas, strict=True)
    ]
    return {
        "schema": "eos.plan/1",
        "backbone": "made-up",
        "visual_tokens": TOKENS,
        "num_layers": LAYERS,
        "dims": {"hidden": 8, "intermediate": 16, "heads": 2, "kv_heads": 2, "head_dim": 4},
        "text_tokens": 4,
        "steps": steps,
        "expected": cost(counts[-1], flops).model_dump(),
    }


def row(
    name, method, scores, full, *, budget=None, searched=False, factors=None, own=None, flops=0.5
):
    """A row with given scores by family, its averages computed as evaluations do."""
    n = len(next(iter(scores.values())))
    made = make_row(
        name,
        cost(TOKENS, 1.0) if method == "full" else cost(budget, flops),
        scores=scores,
        full=None if method == "full" else full,
        families=infos(n, {family: FAMILIES.get(family, "") for family in scores}),
    )
    return StudyRow(
        **dict(made),
        method=method,
        searched=searched,
        factors={**({} if budget is None else {"budget": budget}), **(factors or {})},
        plan=own,
        scores=scores,
    )


def study(name, rows, *, labels=(), **changes):
    """A study around rows; ``changes`` make another setting."""
    n = len(next(iter(rows[0].scores.values())))
    families = {family: FAMILIES.get(family, "") for family in rows[0].scores}
    return Study(
        **{
            "name": name,
            "title": f"The study {name}",
            "labels": tuple(labels),
            "backbone": "made-up",
            "fingerprint": "0123",
            "version": "1.0",
            "num_layers": LAYERS,
            "visual_tokens": TOKENS,
            "task": "mini",
            "split": "test",
            "seed": 1,
            "limit": n,
            "families": infos(n, families),
            "environment": {},
            "commands": (f"eos ablate {name}",),
            "rows": tuple(rows),
            **changes,
        }
    )


def drawn(rate, n, seed):
    """Scores by family with about some rate of right answers."""
    source = random.Random(seed)
    return {family: tuple(int(source.random() < rate) for _ in range(n)) for family in FAMILIES}


STAR = {"l1": 0, "l2": 3, "l3": 8}  # the layers of the plan that was found
SWEPT = {
    "gamma": (0.0, 0.25, 0.5, 1.0),
    "tau": (0.05, 0.2, 0.5, 1.0),
    "theta": (-0.9, 0.0, 0.5),
    "rho": (0.0, 0.5, 1.0),
    "nu": (0.0, 0.5, 1.0),
}
SLICES = {"l1": (0, 1, 2), "l2": (1, 3, 5, 7), "l3": (4, 6, 8, 10)}


def full_row(n):
    scores = drawn(0.85, n, 0)
    return row("full", "full", scores, scores)


def made(name, method, rate, budget, *, n, own=None, **kwargs):
    """A row with answers drawn at a rate."""
    scores = drawn(rate, n, f"{name}{kwargs.get('factors')}")
    own = own or plan([0, 3, 8], [12, max(10, budget), budget])
    return row(name, method, scores, full_row(n).scores, budget=budget, own=own, **kwargs)


def found_row(budget, n, **factors):
    """The row of the plan that was found for a budget."""
    return made(f"eos@{budget}", "eos", 0.8, budget, n=n, searched=True, factors=factors)


def main_rows(n):
    presets = {"sparsevlm-v1": 0.6, "sparsevlm-v2": 0.65, "tome": 0.6, "pool": 0.3, "fastv": 0.5}
    rows = [full_row(n)]
    for place, budget in enumerate(BUDGETS):
        own = {"n": n, "flops": 0.5 - 0.1 * place}
        for name, rate in presets.items():
            rows.append(made(f"{name}@{budget}", name, rate - 0.1 * place, budget, **own))
        rate = 0.82 - 0.02 * place
        rows.append(made(f"eos@{budget}", "eos", rate, budget, searched=True, **own))
    return rows


def reproduce_rows(n):
    names = {"sparsevlm-v2-original": 0.6, "sparsevlm-v2": 0.6, "eos-fixed": 0.7, "eos": 0.8}
    return [full_row(n)] + [
        made(f"{name}@4", name, rate, 4, n=n, searched=name.startswith("eos"))
        for name, rate in names.items()
    ]


def alignment_rows(n):
    weights = [(0.0, 1), (0.01, 1), (0.05, 1), (0.1, 1), (0.5, 1), (0.1, 0)]
    return [full_row(n)] + [
        made(
            f"lambda={weight},ce={ce}@{budget}",
            "paper",
            0.6 + 0.3 * min(weight, 0.1),
            budget,
            n=n,
            searched=True,
            factors={"lambda_a": weight, "ce": ce},
        )
        for budget in BUDGETS[1:]
        for weight, ce in weights
    ]


def layers_rows(n):
    rows = [full_row(n), *(found_row(budget, n) for budget in BUDGETS[1:])]
    for budget in BUDGETS[1:]:
        for slot, layers in SLICES.items():
            for layer in layers:
                own = plan(sorted({**STAR, slot: layer}.values()), [12, 10, budget])
                rate = 0.8 - 0.03 * abs(layer - STAR[slot])
                factors = {"parameter": slot, "value": layer}
                name = f"{slot}={layer}@{budget}"
                rows.append(made(name, "swept", rate, budget, n=n, factors=factors, own=own))
    return rows


def heatmap_rows(n):
    return [full_row(n), found_row(2, n, l1=0, l3=8)] + [
        made(
            f"l1={l1},l3={l3}@2",
            "swept",
            0.8 - 0.05 * l1 - 0.03 * abs(l3 - 8),
            2,
            n=n,
            factors={"l1": l1, "l3": l3},
        )
        for l1 in SLICES["l1"]
        for l3 in SLICES["l3"]
    ]


def operator_rows(n):
    rows = [full_row(n), *(found_row(budget, n) for budget in BUDGETS)]
    for budget in BUDGETS:
        for name, values in SWEPT.items():
            for value in values:
                rate = 0.8 - 0.2 * abs(value - OMEGA[name])
                factors = {"parameter": name, "value": value}
                label = f"{name}={value}@{budget}"
                rows.append(made(label, "swept", rate, budget, n=n, factors=factors))
    return rows


def placement_rows(n):
    early, two = plan([0, 1, 8], [12, 10, 2]), plan([0, 8], [12, 2])
    moved = {"perturbation": "central earlier by 2", "flops": "as placed"}
    return [
        full_row(n),
        found_row(2, n, perturbation="none"),
        made("early", "moved", 0.7, 2, n=n, own=early, factors=moved),
        made("two", "moved", 0.6, 2, n=n, own=two, factors={"perturbation": "no central"}),
    ]


def made_up(n=40):
    """Every study of the paper, with answers drawn at random."""
    main = main_rows(n)
    low = [own for own in main if own.factors.get("budget", 2) <= 4]
    seeds = [
        made(f"eos-{seed}@4", "eos", 0.8, 4, n=n, searched=True, factors={"seed": seed})
        for seed in (1, 2)
    ]
    own = {"n": n, "flops": 0.05, "factors": {"flops_of": "fastv@2"}}
    cheaper = [full_row(n), made("cheap-2@2", "eos", 0.6, 2, searched=True, **own)]
    return [
        study("main", main, labels=["tab:main_retainsweep", "tab:app_perlayer_theta"]),
        study("cheaper", cheaper),
        study("low", low, labels=["tab:app_low_retain"]),
        study("budgets", main, labels=["tab:app_full_retain", "fig:abl_retain"]),
        study("reproduce", reproduce_rows(n), labels=["tab:reproduce"]),
        study("alignment", alignment_rows(n), labels=["fig:abl_lambda"]),
        study("layers", layers_rows(n), labels=["fig:abl_layers"]),
        study("heatmap", heatmap_rows(n), labels=["fig:abl_layer_heat"]),
        study("operator", operator_rows(n), labels=["fig:abl_theta"]),
        study("placement", placement_rows(n), labels=["tab:app_layer_perturb"]),
        study("seeds", [full_row(n), *seeds]),
    ]


def picture(side=96):
    """A picture as a data URI: a red square on grey."""
    image = Image.new("RGB", (side, side), (200, 200, 200))
    image.paste((200, 40, 40), (side // 4, side // 4, side // 2, side // 2))
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + b64encode(buffer.getvalue()).decode()


def examples():
    kept = (0, 3, 5, 6, 9, 10, 12, 15)
    flows = [[t, 5 if t % 2 else None] for t in range(TOKENS) if t not in kept]
    step = {"layer": 0, "kept": kept, "flows": flows}
    last = {"layer": 8, "kept": (5, 10), "flows": [[t, 10] for t in kept if t not in (5, 10)]}
    view = {
        "kept": kept,
        "flows": flows,
        "weights": [0.5] * len(flows),
        "scales": [1.2] * len(kept),
    }
    item = {
        "question": "is there a red square ?",
        "answer": "yes",
        "image": picture(),
        "grid": (4, 4),
        "full": {"answer": "yes"},
    }
    return Examples(
        backbone="made-up",
        num_layers=LAYERS,
        visual_tokens=TOKENS,
        budgets=(4, 2),
        sites=tuple(range(-1, LAYERS - 1)),
        plans={b: {"name": f"eos@{b}", "plan": plan([0, 8], [8, 2])} for b in (4, 2)},
        items=[
            {
                **item,
                "family": family,
                "plans": {b: {"answer": word, "steps": [step, last]} for b in (4, 2)},
            }
            for family, word in zip(FAMILIES, ("yes", "no", "yes"), strict=True)
        ],
        operators={
            "image": picture(),
            "grid": (4, 4),
            "layer": 0,
            "keep": 8,
            "score": "text-raters",
            "operators": dict.fromkeys(("prune", "merge", "pool", "reweight", "searched"), view),
        },
    )


def trajectory(steps=20):
    course = [
        {
            "step": step,
            "lr": 0.001,
            "loss": {"task": 1.0 / (1 + step)},
            "final_tokens": 4,
            "expected_final_tokens": 4.0,
            "active_layers": 3.0,
            "flops_ratio": 0.5,
            "theta": {
                **dict.fromkeys(("c", "tau", "theta", "rho", "nu"), (0.5,) * LAYERS),
                "g": tuple(0.9 if layer in (0, 3, 8) else 0.1 for layer in range(LAYERS)),
                "gamma": tuple(0.5 - 0.02 * step * (layer % 3) for layer in range(LAYERS)),
            },
        }
        for step in range(steps)
    ]
    return Trajectory(
        backbone="made-up",
        num_layers=LAYERS,
        visual_tokens=TOKENS,
        budget=4,
        sites=tuple(range(LAYERS)),
        start="uniform",
        searches=("descent", "eos"),
        steps=course,
        stages=(),
    )


def verification():
    def checks(dtypes):
        return tuple(
            Check(corner=corner, dtype=dtype, cases=25, discrepancy=gap, tolerance=bound)
            for corner, gap in {"prune": 0.0, "merge": 1e-7, "pool": 3e-7, "reweight": 1e-7}.items()
            for dtype, bound in dtypes.items()
        )

    stand_in = StandIn(shape=(8, 16, 64), seeds=10, share_above=0.2, worst=0.01)
    limits = checks({"float32": 1e-6, "bfloat16": 4e-3})
    return Verification(
        listing=checks({"float32": 2e-6}), limits=limits, near_ties=0, stand_ins=(stand_in,)
    )


def fill(folder, *, n=40):
    """Write a whole reproduction of made-up answers."""
    folder = Path(folder)
    for own in made_up(n):
        own.save(folder / "studies" / f"{own.name}.json")
    examples().save(folder / "examples.json")
    trajectory().save(folder / "trajectory.json")
    verification().save(folder / "verify.json")
    Programme(
        backbone="made-up",
        fingerprint="0123",
        version="1.0",
        quick=True,
        environment={},
        commands=("eos reproduce --out DIR",),
        settings={},
        pieces=(),
    ).save(folder / "programme.json")
    return folder
