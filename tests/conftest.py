"""What every test shares: reproducible property tests, and where recorded cases are found."""

from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("eos", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("eos")

torch.set_num_threads(1)  # tests run in parallel processes: more threads only get in their way

HERE = Path(__file__).parent
# A selection is part of the project; the whole set may lie beside it.
GOLDEN_FOLDERS = [HERE / "golden", HERE.parent.parent / "shared" / "golden"]


def golden_cases(pattern: str) -> list:
    """Find recorded cases by name, each once, the project's own copy first."""
    found = {}
    for folder in GOLDEN_FOLDERS:
        for path in sorted(folder.glob(f"{pattern}.npz")):
            found.setdefault(path.stem, path)
    return [pytest.param(path, id=name) for name, path in found.items()]


@pytest.fixture(scope="session")
def sibling(tmp_path_factory) -> Path:
    """Save the miniature's small sibling, random weights and processor, as a folder."""
    from eos.miniature.language import make_processor
    from eos.miniature.model import PATCH, SIZE, miniature_config, new_model

    folder = tmp_path_factory.mktemp("models") / "sibling"
    config = miniature_config(width=32, layers=3, vision_layers=2)
    new_model(config, seed=0).save_pretrained(folder)
    make_processor(size=SIZE, patch=PATCH).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory) -> Path:
    """Make a small reproduction folder of the miniature."""
    from tests.reproduction import make_sample

    return make_sample(tmp_path_factory.mktemp("reproduced"))
