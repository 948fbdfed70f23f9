"""Hub: plans that come from and go to the Hugging Face hub, with a card written from their content.

A repository of plans is laid out as a run's folder: ``plan.json``, and ``plan-64.json`` … for
further budgets. ``huggingface_hub`` is imported when it is needed, since making plans does not wait
for it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eos.errors import ConfigError, PlanError
from eos.runs.files import write_atomically
from eos.space.plan import BudgetKind, Plan
from eos.space.searched import load_plan_of_run

PREFIX = "hub:"  # of a plan's name on the command line
MAIN, CARD = "plan.json", "README.md"
PATTERNS = ["plan.json", "plan-*.json"]
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
USE = """\
import eos

backbone = eos.load_backbone({backbone!r})
plan = eos.Plan.from_pretrained({repo!r}, model=backbone)  # budget=32 for another number of tokens
with eos.reduced(backbone, plan) as model:  # an ordinary Hugging Face model inside the block
    model.generate(**inputs)
"""


def load_pretrained(
    source: str | Path,
    *,
    revision: str | None = None,
    budget: int | None = None,
    kind: BudgetKind = "final",
    model: Any = None,
) -> Plan:
    """Load the plan of a folder or of a repository on the hub; see `Plan.from_pretrained`.

    ``kind`` says what the budget counts, as in `Plan.rescaled`.
    """
    local = Path(source).is_dir()
    if local and revision is not None:
        raise ConfigError(
            f"expected no revision of a folder; found {revision!r} for {str(source)!r}"
        )
    folder = Path(source) if local else _snapshot(str(source), revision)
    if not (folder / MAIN).exists():
        raise PlanError(
            f"expected a {MAIN} in {str(source)!r}; found none. Name the repository or folder of a "
            "plan, not that of a model"
        )
    plan = load_plan_of_run(folder, budget, kind=kind)
    if model is not None:
        _check_model(plan, model, source=str(source))
    return plan


def _snapshot(name: str, revision: str | None) -> Path:
    """Find a repository's plans in the cache, or download them."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    at = f" at revision {revision!r}" if revision else ""
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=PATTERNS))
    except HFValidationError:
        problem = "which is neither a folder nor a name as in 'organisation/name'"
    except RepositoryNotFoundError:
        problem = "which the hub does not have, or shows only to its owner (`hf auth login`)"
    except RevisionNotFoundError:
        problem = f"which the hub does not have{at}"
    except LocalEntryNotFoundError:
        problem = f"which is not in the cache{at}, and the hub cannot be reached"
    except OSError as failure:
        problem = f"which could not be loaded: {failure}"
    raise PlanError(f"expected a folder or a repository with a {MAIN}; found {name!r}, {problem}")


def _check_model(plan: Plan, model: Any, *, source: str) -> None:
    from eos.models.plain import model_sizes

    sizes = model_sizes(model)
    own = (plan.num_layers, plan.dims)
    if own != (sizes["num_layers"], sizes["dims"]):
        raise PlanError(
            f"expected a plan for {sizes['backbone']}, of {sizes['num_layers']} layers of width "
            f"{sizes['dims'].hidden}; found one for {plan.backbone}, of {plan.num_layers} of width "
            f"{plan.dims.hidden}, in {source!r}"
        )


def prepare(
    plan: Plan,
    repo: str,
    *,
    plans: Mapping[int, Plan] | None = None,
    results: object = None,
) -> dict[str, str]:
    """Write the files of a repository, by name; ``plans`` are those of further budgets."""
    further = {f"plan-{budget}.json": own.to_json() for budget, own in (plans or {}).items()}
    return {MAIN: plan.to_json(), **further, CARD: write_card(plan, repo, results=results)}


def save(folder: str | Path, files: Mapping[str, str]) -> None:
    """Write prepared files."""
    for name, content in files.items():
        write_atomically(Path(folder) / name, content)


def push(repo: str, files: Mapping[str, str], *, private: bool, message: str) -> str:
    """Upload prepared files to a repository, which is made if there is none; its new commit."""
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as folder:
        save(folder, files)
        api.create_repo(repo, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message))


def write_card(plan: Plan, repo: str, *, results: object = None) -> str:
    """Write the card: what the plan does and costs, where it comes from, how to use it."""
    cost, named = plan.expected, bool(HUB_NAME.fullmatch(plan.backbone))
    base = f"base_model: {plan.backbone}\n" if named else ""
    backbone = plan.backbone if named or plan.backbone == "miniature" else "your-model"
    measured = f"## Results\n\n```\n{str(results).strip()}\n```\n\n" if results is not None else ""
    return (
        "---\n"
        "library_name: eos\n"
        f"{base}"
        "pipeline_tag: image-text-to-text\n"
        "tags:\n- eos-plan\n- token-reduction\n- vision-language-model\n"
        "---\n\n"
        f"# {repo.rpartition('/')[2]}\n\n"
        f"A plan of EOS, Efficient Operator Search: it reduces the {plan.visual_tokens} visual "
        f"tokens of {plan.backbone} to {cost.final_tokens} inside the decoder, at "
        f"{cost.flops_ratio:.3f} of the full model's prefill FLOPs and {cost.kv_bytes_ratio:.3f} "
        f"of its KV cache ({plan.text_tokens} text tokens; {cost.flops_formula}). It has no "
        "weights: the model stays as it is.\n\n"
        f"```\n{plan}\n```\n\n"
        f"{measured}"
        f"## Where it comes from\n\n{_origin(plan.provenance)}\n\n"
        f"## Use\n\n```python\n{USE.format(backbone=backbone, repo=repo)}```\n"
    )


def _origin(provenance: Mapping[str, Any]) -> str:
    """Say in lines what a plan's provenance holds."""
    if "preset" in provenance:
        kind = provenance.get("kind", "final")
        return f"The preset `{provenance['preset']}` at a {kind} budget of {provenance['budget']}."
    found = provenance.get("search")
    if not isinstance(found, dict):
        return "Its provenance was not recorded."
    facts = found.get("facts") or {}
    lines = {
        "method": found.get("method", "paper"),
        "seed": found.get("seed"),
        "steps": found.get("steps"),
        "stages": ", ".join(stage["name"] for stage in found.get("stages", [])) or None,
        **{name: facts.get(name) for name in ("data", "validation")},
        "fingerprint of the backbone's weights": facts.get("backbone"),
    }
    shown = [f"- {name}: {value}" for name, value in lines.items() if value is not None]
    return "\n".join(["`eos search`:", "", *shown])
