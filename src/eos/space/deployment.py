"""Deployment: what turns Θ into plans besides its variables, kept with Θ.

Which scorer each site uses, how many layers a plan may have, and the model's sizes that costs are
computed with. A Θ that is read from a file becomes the same plans as the one that was searched.
"""

from pydantic import Field, PositiveInt

from eos.config import Checked
from eos.space.cost import LLAMA_7B, TEXT_TOKENS, Dims
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER


class Deployment(Checked):
    """How Θ is deployed.

    Attributes:
        score: the scorer of sites in the decoder, and
        input_score: of the site before it, except
        scores: by layer, where a site has a scorer of its own.
        masses: by layer, the share of attention weights that dropped tokens pass on; 0 elsewhere.
        max_layers: C, steps of a plan at most.
        dims: sizes of a decoder layer.
        text_tokens: the text length that FLOPs assume.
        backbone: name of the model.
    """

    score: str = DEFAULT_SCORER
    input_score: str = INPUT_SCORER
    scores: dict[int, str] = Field(default_factory=dict)
    masses: dict[int, float] = Field(default_factory=dict)
    max_layers: PositiveInt = 3
    dims: Dims = LLAMA_7B
    text_tokens: int = Field(default=TEXT_TOKENS, ge=0)
    backbone: str = "any"

    def scorer(self, layer: int) -> str:
        """Name the scorer of a site; -1 is the input."""
        return self.scores.get(layer, self.input_score if layer < 0 else self.score)
