"""Expected: what a plan costs, as files have it. Read without torch, which reports can spare."""

from eos.config import Frozen

FLOPS_FORMULA = "prefill, 2 FLOPs a multiply-add: Σ_l 2n(2D·HE + 2D·GE + 3D·F) + 4n²·HE"


class Expected(Frozen):
    """What a plan costs, relative to the full model where it says ratio."""

    final_tokens: int
    mean_tokens: float
    flops_ratio: float
    kv_bytes_ratio: float
    text_tokens: int
    flops_formula: str = FLOPS_FORMULA
