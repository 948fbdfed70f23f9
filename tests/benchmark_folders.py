"""Tiny folders in the layouts of the twelve benchmarks: as published, and as parquet of the hub.

``build(folder)`` and ``build_tables(folder)`` make both; every question is in `ROWS`, with the
columns and types of the hub's tables. Images are 96 by 96 pixels, each of its own colour.
"""

import base64
import csv
import io
import json
import zlib
from pathlib import Path

from PIL import Image

YES_NO = " Please answer yes or no."


def png(name: str) -> bytes:
    """Draw an image whose colours depend on its name."""
    seed = zlib.crc32(name.encode())
    image = Image.new("RGB", (96, 96), (seed % 256, seed // 256 % 256, seed // 65536 % 256))
    image.paste((255 - seed % 256, 40, 90), (24, 24, 24 + seed % 48, 72))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _rows(keys: str, *values) -> list[dict]:
    return [dict(zip(keys.split(), row, strict=True)) for row in values]


_POPE = [
    (number, f"Is there a {thing} in the image?", answer, f"COCO_val2014_00000000000{number % 2}")
    for number, (thing, answer) in enumerate(
        [("dog", "yes"), ("car", "no"), ("cat", "yes"), ("bus", "no")], start=1
    )
]
_MME = [
    (f"{kind}/{name}.png", f"Is it {thing}?{YES_NO}", answer, kind)
    for kind, names in {
        "color": ("a", "b"),
        "OCR": ("c", "d"),
        "code_reasoning": ("e", "f"),
    }.items()
    for name in names
    for thing, answer in (("red", "Yes"), ("blue", "No"))
]
_SEED = "question_id data_type data_id question choice_a choice_b choice_c choice_d answer"
_BENCH = "index question hint A B C D answer category L2-category source split"
ROWS: dict[str, list[dict]] = {
    "pope": [
        {"category": split, **row}
        for split in ("random", "popular", "adversarial")
        for row in _rows("question_id question answer image_source", *_POPE)
    ],
    "scienceqa": _rows(
        "question choices answer hint",
        ("Which is a solid?", ["water", "ice"], 1, "Look at the picture."),
        ("Which is red?", ["apple", "sky", "grass"], 0, ""),
        ("Which swims?", ["stone", "fish"], 1, ""),
    ),
    "mme": _rows("question_id question answer category", *_MME),
    "gqa": _rows(
        "id imageId question answer fullAnswer",
        ("201307251", "n1", "Is it overcast?", "no", "No, it is clear."),
        ("201640614", "n1", "Who is wearing the dress?", "woman", "A woman."),
        ("202225914", "n2", "What color is it?", "blue", "It is blue."),
    ),
    "textvqa": _rows(
        "question_id image_id question answers",
        (34602, "img1", "what is the brand?", ["nokia"] * 8 + ["toshiba", "dakota"]),
        (34603, "img1", "what time is it?", ["10:10"] * 2 + ["ten"] * 8),
        (34604, "img2", "how many dogs?", ["two"] * 3 + ["2"] * 7),
    ),
    "seed": _rows(
        _SEED,
        ("101669", "image", "img1", "How many towels?", "One", "Two", "Three", "Four", "A"),
        ("101670", "image", "img2", "What is behind?", "A cat", "A dog", "A bus", "A man", "C"),
        ("v1", "video", "vid1", "What happens?", "It runs", "It sits", "It eats", "No", "B"),
        ("101671", "image", "img3", "Where is it?", "Left", "Right", "Top", "Bottom", "D"),
    ),
    "mmstar": [
        {
            "index": number,
            "question": f"Which one {number}?\nOptions: A: one, B: two, C: three, D: four",
            "answer": "ABCD"[number % 4],
            "category": ("math", "coarse perception")[number > 1],
            "l2_category": ("geometry", "image emotion")[number > 1],
            "meta_info": {"source": "made", "split": "val", "image_path": f"{number}.jpg"},
        }
        for number in range(6)
    ],
    "realworldqa": _rows(
        "question answer",
        ("Which way?\nA. left\nB. right\nPlease answer directly with only the letter.", "B"),
        ("How many cars? Please answer directly with a single word or number.", "2"),
        ("Which is closer?\nA. bus\nB. van\nC. bike\nPlease answer with the letter.", "C"),
    ),
    "ai2d": _rows(
        "question options answer",
        ("What eats grass?", ["fox", "rabbit", "owl", "hawk"], "1"),
        ("What is A?", ["A", "B", "C", "D"], "0"),
        ("What is at the top?", ["root", "leaf", "stem", "soil"], "3"),
    ),
    "ocrbench": _rows(
        "dataset question question_type answer",
        ("IIIT5K", "what is written in the image?", "Regular Text Recognition", ["CENTRE"]),
        ("IIIT5K", "what is written in the image?", "Regular Text Recognition", ["Exit"]),
        ("HME100k", "Write the formula.", HME := "Handwritten Mathematical Expression Recognition",
         ["x ^ { 2 }", "x^2"]),
        ("HME100k", "Write the formula.", HME, ["a + b"]),
    ),
    "chartqa": _rows(
        "type question answer",
        ("human_test", "How many bars?", "14"),
        ("human_test", "Which is the highest?", "Norway"),
        ("augmented_test", "What was the share in 2018?", "57.5"),
        ("augmented_test", "Which year?", "2015"),
    ),
    "mmbench": _rows(
        _BENCH,
        (1, "Which is larger?", "Sizes.", "ant", "cow", "nan", "nan", "B", "x", "y", "z", "dev"),
        (1_000_001, "Which is larger?", "Sizes.", "cow", "ant", "nan", "nan", "A", *"xyz", "dev"),
        (7, "Which is hot?", "nan", "ice", "fire", "snow", "nan", "B", "x", "y", "z", "dev"),
        (1_000_007, "Which is hot?", "nan", "fire", "snow", "ice", "nan", "A", *"xyz", "dev"),
        (2_000_007, "Which is hot?", "nan", "snow", "ice", "fire", "nan", "C", *"xyz", "dev"),
    ),
}  # fmt: skip
SUBSETS = {"scienceqa": "ScienceQA-IMG", "gqa": "testdev_balanced_instructions", "mmbench": "en"}
SPLITS = {"gqa": "testdev", "textvqa": "validation", "mmstar": "val", "mmbench": "dev"}


def image_name(benchmark: str, number: int, row: dict) -> str:
    """Name the image of a row; questions on one image share it."""
    for key in ("image_source", "imageId", "image_id", "data_id"):
        if key in row:
            return f"{benchmark}-{row[key]}"
    if benchmark == "mme":
        return f"mme-{row['question_id']}"
    return f"{benchmark}-{row['index'] % 1_000_000 if benchmark == 'mmbench' else number}"


def build(folder: Path) -> Path:
    """Write all benchmarks as their publishers distribute them."""
    for name, rows in ROWS.items():
        images = [png(image_name(name, number, row)) for number, row in enumerate(rows)]
        _PUBLISHED[name](folder / name, rows, images)
    return folder


def build_tables(folder: Path) -> Path:
    """Write all benchmarks as parquet files in the hub's layout."""
    for name in ROWS:
        write_table(folder / name, name, ROWS[name])
    return folder


def table(name: str, rows: list[dict]):
    """Make a dataset with the hub's columns, images inside; SEED-Bench has lists of images."""
    import datasets

    images = [{"bytes": png(image_name(name, n, row)), "path": None} for n, row in enumerate(rows)]
    listed = name == "seed"
    column = [[image] for image in images] if listed else images
    feature = datasets.List(datasets.Image()) if listed else datasets.Image()
    if name == "gqa":
        return datasets.Dataset.from_list(rows)
    found = datasets.Dataset.from_list(rows)
    features = datasets.Features({**found.features, "image": feature})
    return found.add_column("image", column, feature=feature).cast(features)


def gqa_images(rows: list[dict]):
    """Make GQA's second table."""
    import datasets

    names = list(dict.fromkeys(row["imageId"] for row in rows))
    images = [{"bytes": png(f"gqa-{name}"), "path": None} for name in names]
    made = {"id": names, "image": images}
    features = {"id": datasets.Value("string"), "image": datasets.Image()}
    return datasets.Dataset.from_dict(made, features=datasets.Features(features))


def write_table(folder: Path, name: str, rows: list[dict]) -> None:
    """Write one benchmark's parquet files."""
    subset, split = SUBSETS.get(name, "data"), SPLITS.get(name, "test")
    file = "mmstar.parquet" if name == "mmstar" else f"{subset}/{split}-00000-of-00001.parquet"
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    table(name, rows).to_parquet(folder / file)
    if name == "gqa":
        (folder / "testdev_balanced_images").mkdir()
        place = folder / "testdev_balanced_images" / "testdev-00000-of-00001.parquet"
        gqa_images(rows).to_parquet(place)


def write(path: Path, content: object) -> None:
    """Write text, bytes or JSON, and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def _pope(folder, rows, images):
    for row, image in zip(rows, images, strict=True):
        write(folder / "val2014" / f"{row['image_source']}.jpg", image)
    for split in ("random", "popular", "adversarial"):
        lines = [
            {"question_id": x["question_id"], "image": f"{x['image_source']}.jpg",
             "text": x["question"], "label": x["answer"]}
            for x in rows if x["category"] == split
        ]  # fmt: skip
        write(folder / f"coco_pope_{split}.json", "".join(json.dumps(x) + "\n" for x in lines))


def _scienceqa(folder, rows, images):
    problems = {
        str(n): {**row, "image": "image.png", "split": "test"} for n, row in enumerate(rows)
    }
    problems["99"] = {
        **rows[0],
        "image": None,
        "split": "test",
    }  # text alone: not of this benchmark
    write(folder / "problems.json", problems)
    write(folder / "pid_splits.json", {"train": [], "val": [], "test": list(problems)})
    for number, image in enumerate(images):
        write(folder / "images" / "test" / str(number) / "image.png", image)


def _mme(folder, rows, images):
    root = folder / "MME_Benchmark_release_version"
    for row, image in zip(rows, images, strict=True):
        kind, name = row["question_id"].split("/")
        nested = kind == "color"  # both layouts occur in the release
        write(root / kind / ("images" if nested else ".") / name, image)
        text = root / kind / ("questions_answers_YN" if nested else ".") / f"{name[:-4]}.txt"
        line = f"{row['question']}\t{row['answer']}\n"
        write(text, (text.read_text() if text.exists() else "") + line)


def _gqa(folder, rows, images):
    questions = {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows}
    write(folder / "testdev_balanced_questions.json", questions)
    for row, image in zip(rows, images, strict=True):
        write(folder / "images" / f"{row['imageId']}.jpg", image)


def _textvqa(folder, rows, images):
    write(folder / "TextVQA_0.5.1_val.json", {"dataset_type": "val", "data": rows})
    for row, image in zip(rows, images, strict=True):
        write(folder / "train_images" / f"{row['image_id']}.jpg", image)


def _seed(folder, rows, images):
    write(folder / "SEED-Bench.json", {"questions": rows, "question_type": {}})
    for row, image in zip(rows, images, strict=True):
        if row["data_type"] == "image":
            write(folder / "SEED-Bench-image" / row["data_id"], image)


def _parquet(folder, rows, images):
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder, folder.name, rows)


def _ai2d(folder, rows, images):
    write(folder / "ai2d_test_ids.csv", "".join(f"{n}\n" for n in range(len(rows))))
    for number, (row, image) in enumerate(zip(rows, images, strict=True)):
        name = f"{number}.png"
        asked = {"abcLabel": number == 1, "answerTexts": row["options"],
                 "correctAnswer": int(row["answer"]), "questionId": f"{name}-0"}  # fmt: skip
        found = {"imageName": name, "questions": {row["question"]: asked}}
        write(folder / "ai2d" / "questions" / f"{name}.json", found)
        write(folder / "ai2d" / "images" / name, image)


def _ocrbench(folder, rows, images):
    entries = [
        {"dataset_name": row["dataset"], "type": row["question_type"], "id": number,
         "image_path": f"{row['dataset']}/{number}.jpg", "question": row["question"],
         "answers": row["answer"] if len(row["answer"]) > 1 else row["answer"][0]}
        for number, row in enumerate(rows)
    ]  # fmt: skip
    write(folder / "OCRBench.json", entries)
    for entry, image in zip(entries, images, strict=True):
        write(folder / "OCRBench_Images" / entry["image_path"], image)


def _chartqa(folder, rows, images):
    for kind in ("human", "augmented"):
        own = [(n, row) for n, row in enumerate(rows) if row["type"] == f"{kind}_test"]
        entries = [
            {"imgname": f"{n}.png", "query": row["question"], "label": row["answer"]}
            for n, row in own
        ]
        write(folder / "test" / f"test_{kind}.json", entries)
    for number, image in enumerate(images):
        write(folder / "test" / "png" / f"{number}.png", image)


def _mmbench(folder, rows, images):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "mmbench_dev_20230712.tsv").open("w", newline="") as file:
        names = [*rows[0], "image"]
        writer = csv.DictWriter(file, names, delimiter="\t")
        writer.writeheader()
        for row, image in zip(rows, images, strict=True):
            plain = {k: "" if v == "nan" else v for k, v in row.items()}
            writer.writerow({**plain, "image": base64.b64encode(image).decode()})


_PUBLISHED = {
    "pope": _pope,
    "scienceqa": _scienceqa,
    "mme": _mme,
    "gqa": _gqa,
    "textvqa": _textvqa,
    "seed": _seed,
    "mmstar": _parquet,
    "realworldqa": _parquet,
    "ai2d": _ai2d,
    "ocrbench": _ocrbench,
    "chartqa": _chartqa,
    "mmbench": _mmbench,
}
