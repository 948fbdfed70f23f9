"""The table of `eos bench`."""

from rich.text import Text

from eos.evaluation.latency import LatencyReport, Row
from eos.report.layout import Cell, Grid, show

MAX_OVER_BOUND = 1.05  # of prefill, and
MAX_OVERHEAD = 0.03  # of our own share of it: targets; rows above them are red
LATENCY_COLUMNS = (
    "final",
    "mean",
    "FLOPs",
    "prefill ms",
    "time",
    "bound ms",
    "/ bound",
    "ours",
    "decode ms",
    "KV",
    "KV MB",
)


def show_latency(report: LatencyReport, *, width: int | None = None) -> None:
    """Print one row a plan, and what the columns and conditions are."""
    rows = [[row.name, *_cells(row)] for row in report.rows]
    conditions = (
        f"{report.model}, {report.num_layers} layers, {report.visual_tokens} visual + "
        f"{report.text_tokens} text tokens, batch {report.batch}; torch {report.torch}, "
        f"{report.threads} threads, {report.device}, {report.dtype}; medians of {report.repeats} "
        f"interleaved rounds, {report.decode_tokens} decoded tokens each."
    )
    meaning = (
        "final, mean: visual tokens left, and entering a layer. FLOPs, time, KV: over the full "
        "model's. bound: the untouched layers at the plan's lengths; / bound: prefill over it, "
        f"round by round (target: at most {MAX_OVER_BOUND:g}). ours: share of prefill spent in "
        f"scoring and reducing (target: at most {MAX_OVERHEAD:.0%})."
    )
    grid = Grid(["plan", *LATENCY_COLUMNS], rows, lines_after=(0,))
    show([grid, conditions, meaning], width=width)


def _cells(row: Row) -> list[Cell]:
    held = Text(f"{row.kv_bytes / 2**20:.1f}")
    if not row.kv_exact:
        held.append(f" not {row.kv_bytes_expected / 2**20:.1f}", style="red")
    return [
        str(row.final_tokens),
        f"{row.mean_tokens:.1f}",
        f"x{row.flops_ratio:.3f}",
        f"{row.prefill_ms:.1f}",
        f"x{1 / row.speedup:.3f}",
        f"{row.bound_ms:.1f}",
        _within(row.over_bound, MAX_OVER_BOUND, f"{row.over_bound:.3f}"),
        _within(row.overhead, MAX_OVERHEAD, f"{row.overhead:.2%}") if row.overhead else "-",
        f"{row.decode_ms:.2f}",
        f"x{row.kv_ratio:.3f}",
        held,
    ]


def _within(value: float, target: float, text: str) -> Text:
    return Text(text, style="" if value <= target else "red")
