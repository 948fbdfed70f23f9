"""Settings: the source of samples, as in a configuration file."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PositiveInt

from eos.config import Checked

WORLD_SIZE = 100_000  # more than a search reads; the world has no end


class WorldData(Checked):
    """Questions of the miniature's world.

    Attributes:
        kind: world, llava or hub; each has keys of its own.
        split: of the world.
        families: of questions; all that are evaluated, if empty.
        seed: of the questions.
        size: how many there are.
    """

    kind: Literal["world"] = "world"
    split: Literal["train", "validation", "test"] = "train"
    families: tuple[str, ...] = ()
    seed: int = 0
    size: PositiveInt = WORLD_SIZE


class LlavaData(Checked):
    """Conversations in LLaVA's JSON, images in a folder.

    Attributes:
        file: the JSON.
        images: the folder.
    """

    kind: Literal["llava"] = "llava"
    file: str
    images: str


class HubData(Checked):
    """A dataset as `datasets.load_dataset` takes it, or a folder that `datasets` saved.

    Attributes:
        name: on the Hugging Face hub, a folder, or a format of ``files``: ``parquet``, ``json``
            (also JSON lines), ``csv``, ``imagefolder``.
        files: paths or patterns, such as ``part-*.parquet``; ``data_files`` of `load_dataset`.
        images: folder that paths in the image column start from; the working directory if None.
        subset: its configuration, as the hub names it.
        split: of the dataset.
        image: column of images.
        question: column of questions.
        answer: column of answers.
        conversations: a column of LLaVA conversations; without it, a question and an answer have a
            column each.
    """

    kind: Literal["hub"] = "hub"
    name: str
    files: str | tuple[str, ...] | None = None
    images: str | None = None
    subset: str | None = None
    split: str = "train"
    image: str = "image"
    question: str = "question"
    answer: str = "answer"
    conversations: str | None = None


DataConfig: TypeAlias = Annotated[WorldData | LlavaData | HubData, Field(discriminator="kind")]
