"""The model `eos` of lmms-eval: reads its requests, answers by `eos.evaluation.harness`.

Tasks of images and text: generation by `EosChat`, or by `EosSimple` with ``--force_simple``, which
also scores given answers by their loss. Needs the package lmms_eval.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from lmms_eval.api.model import lmms  # type: ignore[import-not-found]  # an optional package
from tqdm import tqdm  # type: ignore[import-untyped]

from eos.data.samples import Message
from eos.engine.reduced import named_plan
from eos.errors import ConfigError
from eos.evaluation.answering import Answerer
from eos.evaluation.harness import Request, Responder, read_limits, read_messages, user_turn
from eos.models.backbone import load_backbone
from eos.models.processor import load_processor
from eos.runs.processes import Processes

IN_MEMORY = 1024  # requests whose images are held at once
Given: TypeAlias = tuple[Any, ...]  # arguments of a request; its last are number, task and split
Read = TypeVar("Read")
Made = TypeVar("Made")


class EosChat(lmms):  # type: ignore[misc]  # its base is unknown where lmms_eval is not installed
    """A backbone under a plan, for ``--model eos --model_args pretrained=...,plan=plan.json``.

    Args:
        pretrained: 'miniature', a folder, or a model's name on the hub.
        plan: plan.json, a run's folder, or fastv@64; without one, the full model.
        device: where the model runs; by default the accelerator that torch sees, else the CPU.
        device_map: how transformers spreads it over devices, such as auto; instead of a device.
        dtype: of the weights; float32 on a CPU, else the checkpoint's own.
        attn_implementation: as of transformers.
        batch_size: requests at once.
        max_batch_size: given by lmms-eval; not used.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str = "llava-hf/llava-1.5-7b-hf",
        plan: str | None = None,
        *,
        device: str | None = None,
        device_map: str | None = None,
        dtype: str | None = None,
        attn_implementation: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | str | None = None,
    ) -> None:
        super().__init__()
        if not str(batch_size).isdigit() or int(batch_size) < 1:
            raise ConfigError(f"expected a whole number as --batch_size; found {batch_size!r}")
        processes = Processes()
        processes.refuse_sharding()
        self.device = torch.device(device if device and processes.count == 1 else processes.device)
        place = None if device_map else str(self.device)
        options = {"dtype": dtype, "attn_implementation": attn_implementation}
        backbone = load_backbone(pretrained, device=place, device_map=device_map, **options)
        answerer = Answerer(backbone, load_processor(backbone.model))
        chosen = None if plan is None else named_plan(str(plan), backbone)
        self.responder = Responder(answerer, chosen, int(batch_size))

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Answer each request, greedily."""
        return self._collect(requests, self._request, self.responder.texts)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Give the loss of each request's answer, and whether greedy decoding would write it.

        The loss is what lmms-eval's metrics expect: they take the choice of the least.
        """
        return self._collect(requests, self._answered, self.responder.losses)

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refuse: a later round may bring new images."""
        raise ConfigError(
            "expected tasks of one round; found one of several, which the model eos does not "
            "support. Leave the task out"
        )

    def _collect(
        self,
        requests: Sequence[Any],
        read: Callable[[Given], Read],
        respond: Callable[[list[Read]], Iterator[tuple[int, Made]]],
    ) -> list[Made]:
        """Respond to requests, as many at once as are held in memory; results in their order."""
        found: dict[int, Made] = {}
        with tqdm(total=len(requests), disable=self.rank != 0, desc="eos") as bar:
            for start in range(0, len(requests), IN_MEMORY):
                given = [read(x.args) for x in requests[start : start + IN_MEMORY]]
                for number, made in respond(given):
                    found[start + number] = made
                    bar.update()
        return [found[number] for number in range(len(requests))]

    def _doc(self, given: Given) -> tuple[Any, str]:
        number, task, split = given[3:]
        return self.task_dict[task][split][number], f"{task}/{split}/{number}"

    def _request(self, given: Given) -> Request:
        doc, where = self._doc(given)
        _, to_messages, options = given[:3]
        return Request(read_messages(to_messages(doc), where=where), read_limits(options))

    def _answered(self, given: Given) -> list[Message]:
        doc, where = self._doc(given)
        context, target, to_images = given[:3]
        answer = target if isinstance(target, str) else target(doc)
        said = {"role": "assistant", "content": [{"type": "text", "text": str(answer).strip()}]}
        return [*user_turn(context, to_images(doc) or (), where=where), said]


class EosSimple(EosChat):
    """The same for requests of a text and a function that gives the images."""

    is_simple = True

    def _request(self, given: Given) -> Request:
        doc, where = self._doc(given)
        context, options, to_images = given[:3]
        return Request(user_turn(context, to_images(doc) or (), where=where), read_limits(options))
