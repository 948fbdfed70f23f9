"""PyramidDrop (arXiv 2410.17247): drop in stages by the attention of the next layer.

Before each stage the last prompt token's attention is computed with the weights of the layer that
follows; positions are counted anew.
"""

from eos.methods import Method, Preset
from eos.operator.scorers import Scorer, attention_received

METHOD = Method(
    paper="arXiv 2410.17247",
    title="PyramidDrop: Accelerating Your Large Vision-Language Models via Pyramid Visual "
    "Redundancy Reduction",
    scorers={"next-last-query": Scorer(attention_received, rows="last", ahead=True)},
    presets=(
        Preset(
            name="pyramiddrop-default",
            what="PyramidDrop with its authors' default layers and ratios, which cannot go below "
            "144 tokens on average.",
            score="next-last-query",
            layers=(7, 15, 23),
            published={270: (288, 144, 72)},
            positions="reindex",
        ),
        Preset(
            name="pyramiddrop",
            what="Drop in stages before layers 2, 8 and 16 by the next layer's last-token "
            "attention. Labels are means of tokens entering a layer.",
            score="next-last-query",
            layers=(1, 7, 15),
            published={192: (322, 180, 100), 128: (241, 101, 42), 64: (110, 21, 4)},
            positions="reindex",
        ),
    ),
)
