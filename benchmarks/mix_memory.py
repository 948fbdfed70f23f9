"""Time `eos data balanced-mix` on a synthetic file of LLaVA-mix-665K's size, and its peak memory.

python benchmarks/mix_memory.py [--samples 665298] [--folder FOLDER]

The file has the data sets of the real one in their shares, with conversations of their lengths,
about 1 GB in all; the images are empty files, the same for many samples.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

SHORT = "Answer the question using a single word or phrase."
LETTER = "Answer with the option's letter from the given choices directly."
# of each data set: samples of 665,298, folder, questions in a conversation, words of an answer
KINDS: dict[str, tuple[int, str, int, int]] = {
    "instruct": (157_712, "coco/train2017", 3, 60),
    "vqav2": (82_783, "coco/train2017", 6, 1),
    "okvqa": (8_998, "coco/train2017", 1, 1),
    "aokvqa": (66_160, "coco/train2017", 1, 1),
    "refcoco": (48_447, "coco/train2017", 8, 5),
    "gqa": (72_140, "gqa/images", 9, 1),
    "ocr_vqa": (80_000, "ocr_vqa/images", 5, 4),
    "textcaps": (21_953, "textvqa/train_images", 1, 12),
    "vg": (86_417, "vg/VG_100K", 10, 4),
    "sharegpt": (40_688, "", 4, 350),
}
TOTAL = sum(kind[0] for kind in KINDS.values())
IMAGES = 500  # files of each folder
WORDS = ["the", "a", "of", "red", "small", "man", "table", "street", "behind", "is", "umbrella"]


def entries(samples: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Make the entries in random order, shares as in the real file."""
    chance = Random(seed)
    weights = [kind[0] for kind in KINDS.values()]
    for number in range(samples):
        (name,) = chance.choices(list(KINDS), weights)
        _, folder, questions, words = KINDS[name]
        turns = []
        for place in range(questions):
            asked = " ".join(chance.choices(WORDS, k=9)) + "?"
            form = {"vqav2": SHORT, "gqa": SHORT, "okvqa": SHORT, "aokvqa": LETTER}.get(name, "")
            if name == "refcoco":
                asked = "Please provide a short description for this region: [0.1, 0.2, 0.3, 0.4]"
            mark, form = ("<image>\n", f"\n{form}") if place == 0 and folder else ("", "")
            answer = " ".join(chance.choices(WORDS, k=words))
            if name in ("vqav2", "gqa") and chance.random() < 0.4:
                answer = chance.choice(["Yes", "No"])
            turns.append({"from": "human", "value": mark + asked + form})
            turns.append({"from": "gpt", "value": answer})
        image = {"image": f"{folder}/{number % IMAGES}.jpg"} if folder else {}
        yield {"id": f"{number:012d}", **image, "conversations": turns}


def build(folder: Path, samples: int) -> None:
    """Write the mix, empty images, and ScienceQA's 12,726 training problems, half with an image."""
    with (folder / "mix.json").open("w", encoding="utf-8") as file:
        for number, entry in enumerate(entries(samples)):
            file.write(("[" if number == 0 else ", ") + json.dumps(entry))
        file.write("]")
    for place in {kind[1] for kind in KINDS.values() if kind[1]}:
        (folder / "images" / place).mkdir(parents=True)
        for number in range(IMAGES):
            (folder / "images" / place / f"{number}.jpg").touch()
    problems = {}
    for number in range(12_726):
        image = "image.png" if number % 2 else None
        told = {"hint": "", "lecture": "a " * 400, "solution": "b " * 200}
        problem = {"question": f"Which {number}?", "choices": ["a", "b"], "answer": 0}
        problems[str(number)] = {**problem, "image": image, **told}
        if image:
            (folder / f"science/images/train/{number}").mkdir(parents=True)
            (folder / f"science/images/train/{number}/image.png").touch()
    (folder / "science/problems.json").write_text(json.dumps(problems))
    (folder / "science/pid_splits.json").write_text(json.dumps({"train": list(problems)}))
    (folder / "eval.txt").write_text("COCO_val2014_000000000042.jpg\n")


def main() -> None:
    """Build, run the command, report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=TOTAL)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        build(folder, given.samples)
        size = (folder / "mix.json").stat().st_size
        command = [sys.executable, "-m", "eos", "data", "balanced-mix", "--quiet"]
        command += ["--mix", str(folder / "mix.json"), "--images", str(folder / "images")]
        command += ["--scienceqa", str(folder / "science"), "--eval", str(folder / "eval.txt")]
        begin = time.perf_counter()
        subprocess.run([*command, "--out", str(folder / "out.json")], check=True)
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{given.samples} samples, {size / 1e9:.2f} GB: {seconds:.0f} s, peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
