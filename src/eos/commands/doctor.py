"""`eos doctor`: what this machine and installation can do."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from eos.commands.options import AsJson

GIB = 2**30


def doctor(as_json: AsJson = False) -> None:
    """Show versions, devices, attention, half precision on this CPU, free memory and disk."""
    from eos.runs.diagnosis import diagnose

    found = diagnose()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(show_header=False)
    for name, value in rows(found):
        table.add_row(name, value.replace("[", "\\["))
    Console().print(table)


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Write a diagnosis as lines."""
    from eos.runs.diagnosis import OPTIONAL

    lines = [("eos", found["eos"]), ("python", f"{found['python']}, {found['system']}")]
    lines += [(name, version or "missing") for name, version in found["packages"].items()]
    lines += [
        (name, version or f"not installed; only for {OPTIONAL[name]}")
        for name, version in found["optional"].items()
    ]
    lines += [(f"device {x['name']}", _device(x)) for x in found["devices"]]
    lines += [(f"attention {name}", state) for name, state in found["attention"].items()]
    lines += [(f"{name} on the CPU", x) for name, x in found["cpu_half_precision"].items()]
    return [*lines, *((f"free {x}", _of_total(found[x])) for x in ("memory", "disk"))]


def _device(device: dict[str, Any]) -> str:
    memory = f", {_of_total(device)} free" if "free" in device else ""
    return f"{device['what']}{memory}"


def _of_total(space: dict[str, Any]) -> str:
    return f"{space['free'] / GIB:.1f} of {space['total'] / GIB:.1f} GiB"
