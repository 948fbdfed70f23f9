"""Options: arguments that several verbs take, spelled and explained once; choices as enums."""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from eos.models import backbone as models


class Kind(str, Enum):
    """What a budget counts."""

    final = "final"
    mean = "mean"
    published = "published"


class Dtype(str, Enum):
    """Precision of the weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Attention(str, Enum):
    """Attention implementation of transformers."""

    sdpa = "sdpa"
    eager = "eager"
    flash_attention_2 = "flash_attention_2"


class MetricChoice(str, Enum):
    """How answers to one's own questions are scored."""

    exact = "exact"
    contains = "contains"


class PromptStyle(str, Enum):
    """Whose evaluation words the questions of benchmarks."""

    llava = "llava"
    qwen = "qwen"


class Size(str, Enum):
    """A random LLaVA."""

    tiny = "tiny"
    small = "small"
    seven_b = "7b"


class Listing(str, Enum):
    """What `eos ls` lists."""

    all = "all"
    backbones = "backbones"
    scorers = "scorers"
    presets = "presets"
    tasks = "tasks"
    configs = "configs"
    tables = "tables"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
Out = Annotated[
    Path, typer.Option("--out", help="Folder of results; rerun the same command to resume.")
]
Backbone = Annotated[
    str, typer.Option("--backbone", help="'miniature', a folder, or a model's name on the hub.")
]
Plans = Annotated[
    list[str] | None,
    typer.Option(
        "--plan",
        help="fastv@64, fastv@192,64, eos-miniature@64, plan.json, NAME=plan.json, a run's folder "
        "or hub:organisation/name; repeatable.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Where the model runs; the accelerator torch sees, else cpu."),
]
DtypeChoice = Annotated[
    Dtype | None,
    typer.Option("--dtype", help="Of the weights; float32 on cpu, else the checkpoint's own."),
]
AttentionChoice = Annotated[
    Attention | None,
    typer.Option("--attention", help="Implementation; transformers' default for the model."),
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, help="Samples that go through the model at once.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")]

# of evaluations on one's own questions
OwnData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Conversations in LLaVA's JSON instead of a task; the last answer counts. Of "
        "benchmarks: their folder, with one for each; by default the hub's datasets.",
    ),
]
OwnImages = Annotated[Path | None, typer.Option("--images", help="Folder of the images of --data.")]
OwnMetric = Annotated[
    MetricChoice | None,
    typer.Option(
        "--metric",
        help="Of --data: the reference occurs in the prediction as whole words (contains, by "
        "default), or has the same words (exact).",
    ),
]

# of the verbs that read a configuration
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A YAML file, a name of `eos ls configs`, a run's folder, or nothing for the "
        "miniature's; then values that win over it, such as budget=16 objective.align_weight=0.",
    ),
]
DeviceMap = Annotated[
    str | None, typer.Option("--device", help="Where the model runs; short for device_map=.")
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        "--batch-size", min=1, help="Samples through the model at once; short for micro_batch=."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the configuration, where each value comes from, limits, and the expected "
        "passes, time and memory, measured on a few samples; write nothing.",
    ),
]
ConfigSeed = Annotated[int | None, typer.Option("--seed", help="Short for seed=.")]

# of `eos reproduce` and `eos ablate`
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help="Pieces made at once, in processes of their own; by default one for each processor "
        "with the miniature, else 1.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", help="Questions of each family.")]
BudgetList = Annotated[
    str | None, typer.Option("--budgets", help="Final visual tokens, such as 192,64,16.")
]
GivenSearches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="Plans to use instead of searching: eos-miniature, a run's folder or a plan.json; "
        "repeatable, one for each seed.",
    ),
]
ChosenPresets = Annotated[
    list[str] | None,
    typer.Option("--preset", help="Prior methods to compare with; repeatable, by default all."),
]
TaskChoice = Annotated[
    str, typer.Option("--task", help="Questions to answer; mini:digit takes one family.")
]
QuestionSeed = Annotated[int | None, typer.Option("--seed", help="Of the questions.")]
PaperConfig = Annotated[
    str | None,
    typer.Option("--paper", help="Configuration of the paper's search; paper-CONFIG if not given."),
]
DescentChanges = Annotated[
    list[str] | None,
    typer.Option("--descent", help="KEY=VALUE of the paper's searches, such as steps=20."),
]
ListPieces = Annotated[
    bool,
    typer.Option("--dry-run", help="List the pieces and about how long they take; make nothing."),
]


def load_chosen(
    source: str, *, device: str | None, dtype: Dtype | None, attention: Attention | None
) -> "models.Backbone":
    """Load a backbone as the options say."""
    from eos.models.backbone import load_backbone

    return load_backbone(
        source,
        device=device,
        dtype=dtype and dtype.value,
        attn_implementation=attention and attention.value,
    )


def check_before_loading(
    *folders: Path | None, files: Iterable[Path | None] = (), plans: Iterable[str] | None = ()
) -> None:
    """Raise for outputs that cannot be written and plans that cannot be read.

    Called before a model is loaded, which takes long.
    """
    from eos.runs.files import check_file, check_folder
    from eos.space.specs import check_spec

    for folder in folders:
        if folder is not None:
            check_folder(folder)
    for file in files:
        if file is not None:
            check_file(file)
    for spec in plans or ():
        check_spec(spec)


def split_arguments(arguments: list[str] | None) -> tuple[str | None, list[str]]:
    """Tell the name of a configuration, if there is one, from values that change it."""
    given = arguments or []
    named = given[:1] if given and "=" not in given[0] else []
    return (named[0] if named else None), given[len(named) :]


def changes_of(*, device: str | None, batch_size: int | None, seed: int | None) -> list[str]:
    """Write options as changes of a configuration."""
    given = {"device_map": device, "micro_batch": batch_size, "seed": seed}
    return [f"{key}={value}" for key, value in given.items() if value is not None]
