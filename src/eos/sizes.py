"""Sizes of a decoder layer, as files have them; read without torch, which reports need not have."""

from pydantic import PositiveInt

from eos.config import Frozen


class Dims(Frozen):
    """Sizes of one LLaMA-type decoder layer: D, F, H, G and E of `FLOPS_FORMULA`."""

    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
