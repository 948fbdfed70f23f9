"""Complaint 12: data.kind=hub takes parquet, JSON lines and image folders, as `datasets` does."""

import json

import pytest
from PIL import Image

from eos import DataError, HubData
from eos.data.sources import open_source
from eos.searching.files import read_config

datasets = pytest.importorskip("datasets")
COLORS = ["red", "green", "blue"]
QUESTION = "what color ?"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for color in COLORS:
        Image.new("RGB", (8, 6), color).save(folder / f"{color}.png")
    return folder


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(source):
    """Each sample's middle pixel and answer."""
    found = []
    for index in range(len(source)):
        question, answer = source.sample(index).messages
        image, text = question["content"]
        assert text["text"] == QUESTION
        found.append((image["image"].getpixel((4, 3)), answer["content"][0]["text"]))
    return found


EXPECTED = [((255, 0, 0), "red"), ((0, 128, 0), "green"), ((0, 0, 255), "blue")]


def table(images, colors):
    rows = {"image": [str(images / f"{color}.png") for color in colors]}
    rows |= {"question": [QUESTION] * len(colors), "answer": colors}
    made = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    return made.map(lambda row: row)  # with the images' bytes inside


def test_12_parquet_files_by_pattern(tmp_path, images):
    for number, colors in enumerate([COLORS[:2], COLORS[2:]]):
        table(images, colors).to_parquet(str(tmp_path / f"part-{number}.parquet"))
    pattern = str(tmp_path / "part-*.parquet")
    source = open_source(HubData(name="parquet", files=pattern))
    assert read(source) == EXPECTED
    assert pattern in source.describe()
    listed = HubData(name="parquet", files=(str(tmp_path / "part-1.parquet"),))
    assert read(open_source(listed)) == EXPECTED[2:]


def test_12_json_lines_with_images_in_a_folder(tmp_path, images):
    rows = [{"image": f"{x}.png", "question": QUESTION, "answer": x} for x in COLORS]
    path = write_lines(tmp_path / "lines.jsonl", rows)
    source = open_source(HubData(name="json", files=path, images=str(images)))
    assert read(source) == EXPECTED
    nowhere = open_source(HubData(name="json", files=path, images=str(tmp_path)))
    with pytest.raises(DataError, match=r"found no file .*red.png"):
        nowhere.sample(0)


def test_12_a_changed_file_is_other_data(tmp_path, images):
    rows = [{"image": f"{x}.png", "question": QUESTION, "answer": x} for x in COLORS]
    path = write_lines(tmp_path / "lines.jsonl", rows)
    data = HubData(name="json", files=path, images=str(images))
    before = open_source(data).describe()
    assert open_source(data).describe() == before
    write_lines(tmp_path / "lines.jsonl", [*rows[:2], {**rows[2], "answer": "navy"}])
    assert open_source(data).describe() != before


@pytest.mark.parametrize("named", ["folder", "format"])
def test_12_a_folder_of_images_with_metadata(images, named):
    rows = [{"file_name": f"{x}.png", "question": QUESTION, "answer": x} for x in COLORS]
    write_lines(images / "metadata.jsonl", rows)
    folder = HubData(name=str(images))
    data = folder if named == "folder" else HubData(name="imagefolder", files=f"{images}/**")
    assert sorted(read(open_source(data))) == sorted(EXPECTED)


def test_12_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(DataError, match=r"expected a dataset 'parquet' .* in 'gone-\*.parquet'"):
        open_source(HubData(name="parquet", files="gone-*.parquet"))
    with pytest.raises(DataError, match="expected a dataset"):
        open_source(HubData(name=str(tmp_path)))


def test_12_the_command_line_takes_them():
    changes = ["data.kind=hub", "data.name=parquet", "data.files=[a.parquet,b.parquet]"]
    assert read_config(None, changes).data.files == ("a.parquet", "b.parquet")
