"""Trackers: the numbers of a search in TensorBoard or Weights & Biases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eos.errors import ConfigError
from eos.searching.files import leaves


class Trackers:
    """TensorBoard or Weights & Biases through accelerate's trackers, if configured."""

    def __init__(self, names: Sequence[str], folder: Path, config: dict[str, Any]) -> None:
        self._trackers: list[Any] = []
        if not names:
            return
        from accelerate.tracking import (  # type: ignore[import-untyped]
            LOGGER_TYPE_TO_CLASS,
            get_available_trackers,
        )

        ready = {str(name.value) for name in get_available_trackers()}
        missing = [name for name in names if name not in ready]
        if missing:
            raise ConfigError(
                f"expected trackers that are installed, found none for {', '.join(missing)}; "
                "install tensorboard or wandb, or leave trackers empty"
            )
        # by default Weights & Biases writes to the working directory
        places: dict[str, dict[str, Any]]
        places = {"tensorboard": {"logging_dir": folder}, "wandb": {"dir": str(folder)}}
        values = {
            key: value if isinstance(value, (bool, int, float)) else str(value)
            for key, value in leaves(config)
            if value != {}
        }
        for name in names:
            tracker = LOGGER_TYPE_TO_CLASS[name]("eos", **places[name])
            tracker.start()
            tracker.store_init_configuration(values)
            self._trackers.append(tracker)

    def log(self, values: dict[str, float], *, step: int) -> None:
        """Show the numbers of a step."""
        for tracker in self._trackers:
            tracker.log(values, step=step)

    def close(self) -> None:
        """Finish writing."""
        for tracker in self._trackers:
            tracker.finish()
