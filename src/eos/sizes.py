"""Sizes of a decoder layer and costs of a plan, as files have them. Read without torch."""

from pydantic import PositiveInt

from eos.config import Frozen

FLOPS_FORMULA = "prefill, 2 FLOPs a multiply-add: Σ_l 2n(2D·HE + 2D·GE + 3D·F) + 4n²·HE"


class Dims(Frozen):
    """Sizes of one LLaMA-type decoder layer: D, F, H, G and E of `FLOPS_FORMULA`."""

    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt


class Expected(Frozen):
    """What a plan costs, relative to the full model where it says ratio."""

    final_tokens: int
    mean_tokens: float
    flops_ratio: float
    kv_bytes_ratio: float
    text_tokens: int
    flops_formula: str = FLOPS_FORMULA
