"""Pool: the corner of the operator space that spreads dropped tokens over all anchors."""

from math import inf

from eos.methods import Method, Preset
from eos.methods.sparsevlm import STAGE_LAYERS, STAGES_V2
from eos.operator.operate import Omega

METHOD = Method(
    paper="arXiv 2410.04417 (layers)",
    presets=(
        Preset(
            name="pool",
            what="Spread every dropped token over all anchors: the pool corner at SparseVLM's "
            "layers.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
            operator=Omega(gamma=1.0, tau=inf, theta=-inf, rho=0.0, nu=0.0),
        ),
    ),
)
