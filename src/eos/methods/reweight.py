"""Reweight: the corner of the operator space that rescales anchors and moves no content."""

from math import inf

from eos.methods import Method, Preset
from eos.methods.sparsevlm import STAGE_LAYERS, STAGES_V2
from eos.operator.operate import Omega

METHOD = Method(
    paper="arXiv 2410.04417 (layers)",
    presets=(
        Preset(
            name="reweight",
            what="Lengthen anchors that stand for important dropped tokens, move no content: the "
            "reweight corner at SparseVLM's layers.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
            operator=Omega(gamma=0.0, tau=1.0, theta=-inf, rho=1.5, nu=0.0),
        ),
    ),
)
