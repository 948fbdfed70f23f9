"""`eos data balanced-mix` on small folders in the layout of LLaVA-mix-665K and ScienceQA."""

import hashlib
import json
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

import eos
from eos import DataError, cli
from eos.data import json_files
from eos.data.json_files import ArrayFile
from eos.data.mix import LETTER, SHORT, SOURCES, source_of
from eos.data.mix_files import MixManifest
from eos.data.mix_images import BY_CONTENT, BY_NAME, MISSING, read_evaluated
from eos.data.sources import open_source

EACH = 12  # samples of each kind


def picture(path, color):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4 + color % 7, 4 + color // 7), (color % 256, color // 2, 7)).save(path)


def turns(*texts):
    return [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(texts)]


def kinds(n):
    """One sample of each data set of the mixture, by image and conversation."""
    coco, answer = f"coco/train2017/{n:012d}.jpg", ("Yes", "No")[n % 2]
    yield coco, turns(f"<image>\nIs it {n}?\n{SHORT}", answer, "How many?", "2", "Red?", answer)
    yield coco, turns(f"<image>\nHow many of {n}?\n{SHORT}", "3")  # no yes/no question in it
    yield coco, turns(f"<image>\nWhich, {n}?\nA. x\nB. y\n{LETTER}", "A")
    yield coco, turns("<image>\nPlease provide a short description for this region: [0, 1]", "é")
    yield coco, turns(f"<image>\nWhat is unusual about {n}?", "Much, as “this” shows.")
    yield f"gqa/images/{n}.jpg", turns(f"<image>\nIs {n} red?\n{SHORT}", "Yes")
    yield f"textvqa/train_images/{n:x}f.jpg", turns("<image>\nReference OCR token: a", "A sign.")
    yield f"ocr_vqa/images/{n}.jpg", turns("<image>\nWho wrote this?", "A. N.")
    yield f"vg/VG_100K/{n + 9000}.jpg", turns("<image>\nWhere?", "[0.1, 0.2]")
    yield None, turns(f"Write {n} words.", "No.")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folders: mix.json, images, scienceqa, and images that are evaluated on."""
    folder = tmp_path_factory.mktemp("mix")
    entries = []
    for n in range(EACH):
        for place, (image, said) in enumerate(kinds(n)):
            named = {} if image is None else {"image": image}
            entries.append({"id": f"{n}-{place}", **named, "conversations": said})
            if image is not None and not (folder / "images" / image).exists():
                picture(folder / "images" / image, 10 * n + place)
    (folder / "mix.json").write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    problem = {"question": "Which?", "choices": ["a", "b"], "answer": 1, "hint": "", "lecture": "…"}
    problems = {str(n): {**problem, "image": "image.png", "hint": f"H{n}"} for n in range(5)}
    problems |= {"5": {**problem, "image": None}, "6": {**problem, "image": "image.png"}}
    for n in range(5):
        picture(folder / f"scienceqa/images/train/{n}/image.png", 200 + n)
    (folder / "scienceqa/problems.json").write_text(json.dumps(problems))
    splits = {"train": [str(n) for n in range(6)], "test": ["6"]}
    (folder / "scienceqa/pid_splits.json").write_text(json.dumps(splits))
    picture(folder / "eval/val2014/COCO_val2014_000000999999.jpg", 255)
    return folder


def run(made, out, *more, size="20", **places):
    given = {"mix": made / "mix.json", "images": made / "images", "scienceqa": made / "scienceqa"}
    given |= {"eval": made / "eval", "out": out, **places}
    options = [text for name, path in given.items() for text in (f"--{name}", str(path))]
    return cli.main(["data", "balanced-mix", *options, "--size", size, "--quiet", *more])


def read(out):
    return json.loads(out.read_text(encoding="utf-8")), MixManifest.load(
        out.with_name(f"{out.stem}.manifest.json")
    )


def test_equal_shares_and_what_a_source_lacks_goes_to_the_others(made, tmp_path, capsys):
    out = tmp_path / "mix.json"
    assert run(made, out) == 0
    rows, manifest = read(out)
    assert Counter(row["source"] for row in rows) == dict.fromkeys(SOURCES, 4)
    assert "20 of 20 samples" in capsys.readouterr().out
    assert cli.main(["validate", str(tmp_path / "mix.manifest.json")]) == 0
    assert run(made, out, size="45") == 0
    rows, manifest = read(out)
    assert {x: found.kept for x, found in manifest.sources.items()} == dict(
        zip(SOURCES, (10, 5, 10, 10, 10), strict=True)
    )
    assert manifest.sources["scienceqa"].available == 5
    assert manifest.unused == 6 * EACH
    assert Counter(x["conversations"][1]["value"] for x in rows if x["source"] == "yes-no") == {
        "Yes": 5,
        "No": 5,
    }


def test_samples_are_what_a_search_reads(made, tmp_path):
    out = tmp_path / "mix.json"
    assert run(made, out) == 0
    source = open_source(eos.LlavaData(file=str(out), images=str(made / "images")))
    samples = [source.sample(i) for i in range(len(source))]
    assert all(sample.messages[0]["content"][0]["type"] == "image" for sample in samples)
    science = next(x for x in read(out)[0] if x["source"] == "scienceqa")
    number = science["id"].removeprefix("scienceqa-")
    assert science["conversations"] == turns(
        f"<image>\nContext: H{number}\nWhich?\nA. a\nB. b\n{LETTER}", "B"
    )
    asked = next(x for x in read(out)[0] if x["source"] == "yes-no")["conversations"]
    assert len(asked) == 2
    assert asked[0]["value"].endswith(f"?\n{SHORT}")


def test_the_same_seed_gives_the_same_bytes_and_a_smaller_size_its_begin(made, tmp_path):
    outs = [tmp_path / f"{name}.json" for name in ("one", "two", "other", "small")]
    for out, seed, size in zip(outs, "0010", ("30", "30", "30", "15"), strict=True):
        assert run(made, out, "--seed", seed, size=size) == 0
    one, two, other = (out.read_bytes() for out in outs[:3])
    assert one == two
    assert one != other
    assert read(outs[0])[0][:15] == read(outs[3])[0]
    assert read(outs[0])[1] == read(outs[1])[1]


def test_images_that_are_evaluated_on_are_left_out(made, tmp_path):
    """By name, whatever COCO calls it, and by content; the control: without them all are used."""
    control = tmp_path / "control.json"
    assert run(made, control, size="100") == 0
    assert not any(found.dropped for found in read(control)[1].sources.values())
    names, files = tmp_path / "pope.json", tmp_path / "files"
    names.write_text('{"image": "COCO_val2014_000000000003.jpg", "text": "Is it?"}\n' * 2)
    files.mkdir()
    shutil.copy(made / "images/gqa/images/5.jpg", files / "renamed.jpg")
    shutil.copy(made / "scienceqa/images/train/2/image.png", files / "another.png")
    out = tmp_path / "mix.json"
    assert run(made, out, "--eval", str(names), "--eval", str(files), size="100") == 0
    rows, manifest = read(out)
    dropped = {name: found.dropped for name, found in manifest.sources.items()}
    assert dropped["gqa"] == dropped["scienceqa"] == {BY_CONTENT: 1}
    assert dropped["yes-no"] == dropped["conversation"] == {BY_NAME: 1}
    assert dropped["textvqa"] == {}
    used = {Path(row["image"]).name for row in rows}
    assert not used & {"000000000003.jpg", "5.jpg"}
    lines = [json.loads(x) for x in (tmp_path / "mix.dropped.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert {"000000000003.jpg", "5.jpg", "image.png"} == {Path(x["image"]).name for x in lines}


def test_missing_images_and_duplicates_are_named_and_replaced(made, tmp_path, capsys):
    images = tmp_path / "images"
    shutil.copytree(made / "images", images)
    (images / "gqa/images/7.jpg").unlink()
    mix = tmp_path / "twice.json"
    entries = json.loads((made / "mix.json").read_text(encoding="utf-8"))
    mix.write_text(json.dumps([*entries, *[x for x in entries if "textvqa" in x.get("image", "")]]))
    out = tmp_path / "mix.json"
    assert run(made, out, size="200", images=images, mix=mix) == 0
    _, manifest = read(out)
    assert manifest.sources["gqa"].dropped == {MISSING: 1}
    assert manifest.sources["textvqa"].dropped == {"duplicate": EACH}
    assert '"gqa/images/7.jpg"' in (tmp_path / "mix.dropped.jsonl").read_text()
    shutil.rmtree(images / "gqa")
    capsys.readouterr()
    assert run(made, tmp_path / "none.json", images=images) == 1
    told = capsys.readouterr().err
    assert f"gqa: {EACH} samples, dropped {{'missing': {EACH}}}, such as gqa/images/" in told
    assert not (tmp_path / "none.json").exists()


def test_a_truncated_or_damaged_file_is_named_with_its_place(made, tmp_path, capsys):
    data, broken = (made / "mix.json").read_bytes(), tmp_path / "broken.json"
    for cut in (0, 1, len(data) // 2, len(data) - 2):
        broken.write_bytes(data[:cut])
        assert run(made, tmp_path / "mix.json", mix=broken) == 1
        assert "entries, at byte" in capsys.readouterr().err
    places = [place.offset for place, _ in ArrayFile(made / "mix.json").entries()]
    broken.write_bytes(data[: places[3] + 10])
    with pytest.raises(DataError, match=f"after 3 entries, at byte {places[3]}; found"):
        list(ArrayFile(broken).entries())
    for text in (b"[1, 2] 3", b"[1 2]", b'{"a": 1}', b'["\xff"]'):
        broken.write_bytes(text)
        with pytest.raises(DataError, match=r"broken.json: expected .* after \d entries"):
            list(ArrayFile(broken).entries())
    assert not (tmp_path / "mix.json").exists()


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_entries_and_places_are_those_of_the_json_module(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(json_files, "CHUNK", chunk)
    values = [{"a": "é“]},"}, 12, [1, {"b": None}], "x", -1.5e3, {}]
    for path, indent in [(tmp_path / "flat.json", None), (tmp_path / "wide.json", 2)]:
        path.write_text(json.dumps(values, ensure_ascii=False, indent=indent), encoding="utf-8")
        array = ArrayFile(path)
        found = list(array.entries())
        assert [value for _, value in found] == values
        with path.open("rb") as file:
            assert [place.read(file) for place, _ in found] == values
        assert array.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """The control: the whole list at once needs more than ten times as much."""
    monkeypatch.setattr(json_files, "CHUNK", 1 << 14)
    entry = {"id": "1", "image": "ocr_vqa/images/1.jpg", "conversations": turns("a" * 500, "b")}
    peaks = []
    for count in (400, 4000):
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps([entry] * count))
        tracemalloc.start()
        assert sum(source_of(x) is None for _, x in ArrayFile(path).entries()) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
    tracemalloc.start()
    json.loads(path.read_bytes())
    assert tracemalloc.get_traced_memory()[1] > 10 * peaks[1]
    tracemalloc.stop()


def test_evaluation_images_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match="found none at"):
        read_evaluated([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected images, or lines that name some"):
        read_evaluated([tmp_path / "empty"])
    names = tmp_path / "names.txt"
    names.write_text("a/COCO_val2014_000000000001.jpg\nb.png\n")
    assert read_evaluated([names]).names == {"000000000001", "b"}
