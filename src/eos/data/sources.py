"""Sources: LLaVA's conversation files, Hugging Face datasets, the miniature's world."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.data.json_files import read_json
from eos.data.samples import Message, Sample, Source, UnusableError, load_image
from eos.data.settings import DataConfig, HubData, LlavaData, WorldData
from eos.errors import ConfigError, DataError
from eos.miniature import world
from eos.miniature.families import QUESTION_FAMILIES

PLACEHOLDER = "<image>"  # of an image in LLaVA's conversations
SAVED = ("state.json", "dataset_dict.json")  # what `datasets` writes into a folder it saves
SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def open_source(data: Source | DataConfig) -> Source:
    """Open the source that data settings name; a source stays as it is."""
    if isinstance(data, Source):
        return data
    if isinstance(data, WorldData):
        return WorldSource(data)
    if isinstance(data, LlavaData):
        return LlavaSource(data)
    if isinstance(data, HubData):
        return HubSource(data)
    raise DataError(
        "expected a source (__len__, describe, name, sample) or data settings, such as "
        f"eos.LlavaData(file=..., images=...); found {type(data).__name__}"
    )


class WorldSource:
    """The miniature's questions, family after family in turn."""

    def __init__(self, config: WorldData) -> None:
        unknown = [name for name in config.families if name not in QUESTION_FAMILIES]
        if unknown:
            raise ConfigError(
                f"expected families among {', '.join(QUESTION_FAMILIES)}; found {unknown}"
            )
        self.config, self.families = config, config.families or world.EVALUATED

    def __len__(self) -> int:
        return self.config.size

    def describe(self) -> str:
        """Describe the source."""
        what = f"{self.config.split} {self.config.seed} {','.join(self.families)}"
        return f"world {what} x{len(self)}"

    def name(self, index: int) -> str:
        """Name a sample."""
        number, place = divmod(index, len(self.families))
        return f"{self.families[place]}/{self.config.split}/{self.config.seed}/{number}"

    def sample(self, index: int) -> Sample:
        """Make a sample."""
        number, place = divmod(index, len(self.families))
        made = world.example(self.config.split, self.families[place], number, seed=self.config.seed)
        return Sample(made.id, made.messages(answered=True))


class LlavaSource:
    """A list of ``{"id", "image", "conversations": [{"from", "value"}]}``, images in a folder."""

    def __init__(self, config: LlavaData) -> None:
        path = Path(config.file)
        entries, digest = read_json(path)
        if not isinstance(entries, list) or not entries:
            raise DataError(f"{path}: expected a list of conversations, found none")
        if not Path(config.images).is_dir():
            raise DataError(f"expected a folder of images, found none at {config.images}")
        self.path, self.images = path, Path(config.images)
        self.entries, self.digest = entries, digest[:16]

    def __len__(self) -> int:
        return len(self.entries)

    def describe(self) -> str:
        """Describe the source."""
        return f"llava {self.path.name} {self.digest} x{len(self)}"

    def name(self, index: int) -> str:
        """Name a sample."""
        entry = self.entries[index]
        return str(entry.get("id", index)) if isinstance(entry, dict) else str(index)

    def sample(self, index: int) -> Sample:
        """Make a sample, or raise `UnusableError`."""
        entry, name = self.entries[index], self.name(index)
        if not isinstance(entry, dict):
            raise UnusableError(f"{name}: expected an object, found {type(entry).__name__}")
        found = entry.get("image")
        files = found if isinstance(found, list) else [found]
        if not found:
            raise UnusableError(f"{name}: expected an image, found none")
        images = [load_image(self.images / str(file), where=name) for file in files]
        return Sample(name, conversation(entry.get("conversations"), images, where=name))


class HubSource:
    """A table with images; `datasets` is needed only here."""

    def __init__(self, config: HubData) -> None:
        self.config, self.rows = config, open_table(config)
        needed = [config.image, config.conversations or config.question]
        needed += [] if config.conversations else [config.answer]
        missing = [name for name in needed if name not in self.rows.column_names]
        if missing:
            raise DataError(
                f"expected columns {', '.join(needed)} in {config.name}; {', '.join(missing)} not "
                f"found among {', '.join(self.rows.column_names)}"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def describe(self) -> str:
        """Describe the source."""
        config = self.config
        named = "" if config.files is None else f" {config.files}"
        return f"hub {config.name}{named} {config.subset} {config.split} {self.rows._fingerprint}"

    def name(self, index: int) -> str:
        """Name a sample."""
        return f"{self.config.split}/{index}"

    def sample(self, index: int) -> Sample:
        """Make a sample, or raise `UnusableError`."""
        name, config = self.name(index), self.config
        row = self.rows[index]
        found = row[config.image]
        files = found if isinstance(found, list) else [found]
        images = [load_image(self._placed(file), where=name) for file in files]
        if config.conversations is not None:
            return Sample(name, conversation(row[config.conversations], images, where=name))
        turns = [
            {"from": "human", "value": row[config.question]},
            {"from": "gpt", "value": row[config.answer]},
        ]
        return Sample(name, conversation(turns, images, where=name))

    def _placed(self, found: object) -> object:
        """Put the folder of images before a path."""
        folder = self.config.images
        return Path(folder) / found if folder is not None and isinstance(found, str) else found


def conversation(turns: object, images: Sequence[Any], *, where: str) -> list[Message]:
    """Write LLaVA's turns as chat templates read them, images at their placeholders."""
    if not isinstance(turns, list) or not turns:
        raise UnusableError(f"{where}: expected a conversation, found none")
    messages: list[Message] = []
    left = list(images)
    for turn in turns:
        speaker = turn.get("from", turn.get("role")) if isinstance(turn, Mapping) else None
        text = turn.get("value", turn.get("content")) if isinstance(turn, Mapping) else None
        if speaker not in SPEAKERS or not isinstance(text, str):
            raise UnusableError(
                f"{where}: expected turns of a human and of gpt, found {turn!r:.80}"
            )
        content: list[Message] = []
        role = SPEAKERS[speaker]
        for _ in range(text.count(PLACEHOLDER) if role == "user" else 0):
            if not left:
                raise UnusableError(f"{where}: expected an image for every {PLACEHOLDER}")
            content.append({"type": "image", "image": left.pop(0)})
        words = text.replace(PLACEHOLDER, "").strip()
        messages.append({"role": role, "content": [*content, {"type": "text", "text": words}]})
    if left:  # not named in the text: shown first
        messages[0]["content"][:0] = [{"type": "image", "image": image} for image in left]
    if messages[0]["role"] != "user" or messages[-1]["role"] != "assistant":
        raise UnusableError(f"{where}: expected a question first and an answer last")
    return messages


def open_table(config: HubData) -> Any:
    """Open a table of the hub, its cache or files; images stay undecoded."""
    try:
        import datasets  # type: ignore[import-untyped]  # an optional package
    except ImportError:
        raise DataError(
            "expected the package datasets for data of kind 'hub', found none; install it with "
            "`pip install datasets`"
        ) from None
    try:
        if config.files is None and any((Path(config.name) / x).exists() for x in SAVED):
            table = datasets.load_from_disk(config.name)
            table = table[config.split] if isinstance(table, dict) else table
        else:
            files = list(config.files) if isinstance(config.files, tuple) else config.files
            table = datasets.load_dataset(
                config.name, config.subset, split=config.split, data_files=files
            )
    except Exception as failure:  # its loaders raise whatever theirs do
        raise DataError(
            f"expected a dataset {config.name!r} with a split {config.split!r}"
            + ("" if config.files is None else f" in {config.files!r}")
            + f", found: {failure}"
        ) from None
    if isinstance(table.features.get(config.image), datasets.Image):
        # undecoded, since a broken image must not end the run inside the library
        table = table.cast_column(config.image, datasets.Image(decode=False))
    return table
