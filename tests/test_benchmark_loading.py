"""Loaders of benchmarks on tiny folders in the published layouts and in the hub's."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

import eos
from eos.evaluation.benchmarks.loading import load
from eos.evaluation.benchmarks.prompts import STYLES
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.benchmarks.task import benchmark_task
from tests import benchmark_folders
from tests.benchmark_folders import ROWS, build, build_tables, gqa_images, table

POPE = Path(__file__).parent.parent.parent / "shared" / "data" / "pope"
WITH_FILES = [name for name, own in BENCHMARKS.items() if own.rows is not None]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Keep what `datasets` caches out of the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return build(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return build_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def copy(published, tmp_path):
    """Copy one benchmark's folder, to break it."""
    return lambda name: shutil.copytree(published / name, tmp_path / "copied" / name).parent


def loaded(name, folder, **options):
    return load(BENCHMARKS[name], folder, **{"limit": None, "seed": 0, **options})


def contents(found):
    """What questions consist of, whatever their names and order."""
    questions = [question for own in found.questions.values() for question in own]
    return sorted(
        (x.text, x.answers, x.family, x.options, x.hint, x.kind, x.image()) for x in questions
    )


def problems(found):
    counts = Counter()
    for sample in found.skipped:
        counts[sample.kind] += sample.count
    return dict(counts)


def expected_count(name):
    return len([row for row in ROWS[name] if row.get("data_type") != "video"])


@pytest.mark.parametrize("name", BENCHMARKS)
def test_published_files_and_tables_hold_the_same_questions(name, published, tables):
    files, rows = loaded(name, published), loaded(name, tables)
    assert contents(files) == contents(rows)
    assert len(contents(files)) == expected_count(name)
    missing = {"missing question": BENCHMARKS[name].size - expected_count(name)}
    assert problems(files) == problems(rows) == missing  # and nothing else is wrong


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_single_benchmarks_folder_will_do(name, published):
    assert contents(loaded(name, published / name)) == contents(loaded(name, published))


@pytest.mark.parametrize("name", ["gqa", "seed", "mmbench"])
def test_a_folder_that_datasets_saved(name, published, tmp_path):
    import datasets

    folder, split = tmp_path / name, BENCHMARKS[name].split
    if name == "gqa":
        first, second = (table.subset for table in BENCHMARKS[name].tables)
        datasets.DatasetDict({split: table(name, ROWS[name])}).save_to_disk(folder / first)
        gqa_images(ROWS[name]).save_to_disk(folder / second)
    else:
        table(name, ROWS[name]).save_to_disk(folder)
    assert contents(loaded(name, tmp_path)) == contents(loaded(name, published))


def cached(folder, name, *, subset, split, rows):
    """Put a table where `datasets` keeps what it has downloaded under this name."""
    import datasets

    rows.to_parquet(folder / "made.parquet")
    files = {split: str(folder / "made.parquet")}
    datasets.load_dataset("parquet", data_files=files, cache_dir=str(folder / "made"))
    [found] = (folder / "made").rglob("dataset_info.json")
    short = name.split("/")[1].lower()
    place = folder / name.lower().replace("/", "___") / subset / "0.0.0" / "0123456789abcdef"
    shutil.copytree(found.parent, place)
    info = json.loads(found.read_text())
    changed = {"config_name": subset, "dataset_name": short}
    (place / found.name).write_text(json.dumps({**info, **changed}))
    (place / f"parquet-{split}.arrow").rename(place / f"{short}-{split}.arrow")
    shutil.rmtree(folder / "made")


def test_the_hubs_dataset_is_found_in_the_cache_without_a_network(tmp_path, monkeypatch, published):
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    message = r"POPE: expected a dataset 'lmms-lab/POPE' with a split 'test'.*--data FOLDER"
    with pytest.raises(eos.DataError, match=message):
        loaded("pope", None)
    made = table("pope", ROWS["pope"])
    cached(tmp_path, "lmms-lab/POPE", subset="default", split="test", rows=made)
    assert contents(loaded("pope", None)) == contents(loaded("pope", published))
    for subset, rows in zip(
        ("testdev_balanced_instructions", "testdev_balanced_images"),
        (table("gqa", ROWS["gqa"]), gqa_images(ROWS["gqa"])),
        strict=True,
    ):
        # the name that these datasets have by now
        cached(tmp_path, "lmms-lab-encoder/GQA", subset=subset, split="testdev", rows=rows)
    assert contents(loaded("gqa", None)) == contents(loaded("gqa", published))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_prompt_has_the_question_and_ends_with_the_instruction(name, published):
    benchmark = BENCHMARKS[name]
    for questions in loaded(name, published).questions.values():
        for question in questions:
            written = {style: benchmark.prompt(question, style) for style in STYLES}
            plain = question.text.removesuffix(benchmark_folders.YES_NO)
            assert all(plain in text for text in written.values())
            for text in written.values():
                listed = [line for line in text.splitlines() if line[1:3] == ". "]
                assert not question.options or [x[3:] for x in listed] == list(question.options)


def test_prompts_by_hand(published):
    [first, *_] = loaded("scienceqa", published).questions["test"]
    assert BENCHMARKS["scienceqa"].prompt(first, "llava") == (
        "Context: Look at the picture.\nWhich is a solid?\nA. water\nB. ice\n"
        "Answer with the option's letter from the given choices directly."
    )
    assert BENCHMARKS["scienceqa"].prompt(first, "qwen") == (
        "Hint: Look at the picture.\nQuestion: Which is a solid?\nOptions:\nA. water\nB. ice\n"
        "Please select the correct answer from the options above."
    )
    question = loaded("mme", published).questions["color"][0]
    assert BENCHMARKS["mme"].prompt(question, "llava") == (
        "Is it red?\nAnswer the question using a single word or phrase."
    )
    assert BENCHMARKS["mme"].prompt(question, "qwen") == "Is it red? Please answer yes or no."
    with pytest.raises(eos.ConfigError, match="expected prompts of llava, qwen; found 'gpt'"):
        benchmark_task(BENCHMARKS["mme"], published, limit=None, seed=0, prompts="gpt")


def test_a_missing_and_a_broken_image_are_counted_and_left_out(copy):
    folder = copy("pope")
    images = folder / "pope" / "val2014"
    (images / "COCO_val2014_000000000000.jpg").unlink()
    found = loaded("pope", folder)
    assert problems(found)["missing image"] == 6  # two questions in each split
    assert len(contents(found)) == 6
    assert "COCO_val2014_000000000000.jpg" in found.skipped[-1].reason
    whole = (images / "COCO_val2014_000000000001.jpg").read_bytes()
    (images / "COCO_val2014_000000000000.jpg").write_bytes(whole[:100])
    assert problems(loaded("pope", folder))["broken image"] == 6
    (images / "COCO_val2014_000000000001.jpg").unlink()
    with pytest.raises(eos.DataError, match="expected usable questions of pope, found none: "):
        loaded("pope", folder)


def test_a_duplicate_an_unknown_answer_and_a_torn_line_are_counted(copy):
    folder = copy("pope")
    path = folder / "pope" / "coco_pope_random.json"
    first, second, *rest = path.read_text().splitlines()
    entry = json.loads(second)
    unknown = [json.dumps({**entry, "label": "maybe"}), json.dumps({**entry, "text": None})]
    path.write_text("\n".join([first, first, *unknown, *rest[:-1], rest[-1][:40]]))
    found = loaded("pope", folder)
    assert problems(found) == {
        "duplicate id": 1,
        "unknown option": 1,
        "incomplete entry": 1,
        "truncated line": 1,
        "missing question": 9000 - 10,
    }
    assert len(found.questions["random"]) == 2
    named = {sample.kind: sample for sample in found.skipped}
    assert "question_id 2" in named["unknown option"].id
    assert "found 'maybe'" in named["unknown option"].reason
    assert named["truncated line"].id == "coco_pope_random.json, line 6"


@pytest.mark.parametrize(
    ("name", "column", "value", "kind"),
    [
        ("scienceqa", "answer", 5, "unknown option"),
        ("seed", "answer", "E", "unknown option"),
        ("mmstar", "answer", "F", "unknown option"),
        ("ai2d", "answer", "9", "unknown option"),
        ("mmbench", "answer", "D", "unknown option"),  # it has fewer options
        ("textvqa", "answers", [], "incomplete entry"),
        ("ocrbench", "answer", [], "incomplete entry"),
        ("chartqa", "type", "other", "unknown option"),
        ("realworldqa", "answer", "", "incomplete entry"),
        ("gqa", "imageId", "n9", "missing image"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named(name, column, value, kind, tmp_path, monkeypatch):
    if name == "gqa":
        monkeypatch.setattr(benchmark_folders, "gqa_images", lambda _: gqa_images(ROWS["gqa"]))
    broken = [{**ROWS[name][0], column: value}, *ROWS[name][1:]]
    benchmark_folders.write_table(tmp_path / name, name, broken)
    found = loaded(name, tmp_path)
    assert problems(found)[kind] == 1
    left = expected_count(name) - 1
    assert len(contents(found)) == left


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_a_file_of_at_most_60_lines(name):
    path = Path(eos.__file__).parent / "evaluation" / "benchmarks" / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_a_pair_that_lost_a_question_does_not_count(copy):
    folder = copy("mme")
    place = folder / "mme" / "MME_Benchmark_release_version"
    path = place / "OCR" / "c.txt"
    path.write_text(path.read_text().splitlines()[0])
    found = loaded("mme", folder)
    assert problems(found)["incomplete group"] == 1
    assert len(found.questions["OCR"]) == 2
    (place / "color" / "images" / "a.png").unlink()
    assert problems(loaded("mme", folder))["missing image"] == 2


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gqa", "testdev_balanced_questions.json"),
        ("textvqa", "TextVQA_0.5.1_val.json"),
        ("seed", "SEED-Bench.json"),
        ("ocrbench", "OCRBench.json"),
        ("chartqa", "test/test_human.json"),
        ("scienceqa", "problems.json"),
    ],
)
def test_a_truncated_file_is_named(copy, name, file):
    folder = copy(name)
    path = folder / name / file
    path.write_text(path.read_text()[:-20])
    with pytest.raises(eos.DataError, match=r"expected a whole JSON file.*download it again"):
        loaded(name, folder)
    path.write_text("[3]")
    with pytest.raises(eos.DataError, match=r"found another form|expected usable|cannot read"):
        loaded(name, folder)


def test_a_truncated_table_of_mmbench_is_counted(copy):
    folder = copy("mmbench")
    path = folder / "mmbench" / "mmbench_dev_20230712.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], "\t".join(lines[-1].split("\t")[:4])]))
    assert problems(loaded("mmbench", folder))["truncated line"] == 1


@pytest.mark.parametrize("name", BENCHMARKS)
def test_an_empty_folder_says_what_is_expected(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(eos.DataError, match=f"{BENCHMARKS[name].title}: expected .*, found none"):
        loaded(name, tmp_path)
    with pytest.raises(eos.DataError, match="expected a folder"):
        loaded(name, tmp_path / "nowhere")


def test_the_layout_of_the_hubs_converted_parquet(tables, tmp_path, published):
    [file] = (tables / "pope").rglob("*.parquet")
    place = tmp_path / "pope" / "default" / "test"
    place.mkdir(parents=True)
    shutil.copy(file, place / "0000.parquet")
    assert contents(loaded("pope", tmp_path)) == contents(loaded("pope", published))


def test_the_seed_draws_whole_groups(published):
    drawn = [loaded("mme", published, limit=3, seed=seed) for seed in range(6)]
    for found in drawn:
        assert all(len(own) == 2 for own in found.questions.values())
        assert all(len({x.cluster for x in own}) == 1 for own in found.questions.values())
    assert len({found.digest for found in drawn}) > 1
    assert loaded("mme", published, limit=3, seed=4).digest == drawn[4].digest
    assert len(contents(loaded("mmbench", published, limit=4))) in (2, 3)
    assert len(contents(loaded("mme", published, limit=99))) == len(ROWS["mme"])


def test_the_digest_sees_texts_and_images(copy):
    folder = copy("gqa")
    before = loaded("gqa", folder).digest
    assert loaded("gqa", folder).digest == before
    image = folder / "gqa" / "images" / "n1.jpg"
    image.write_bytes(benchmark_folders.png("another"))
    assert loaded("gqa", folder).digest != before
    image.write_bytes(benchmark_folders.png("gqa-n1"))
    assert loaded("gqa", folder).digest == before
    path = folder / "gqa" / "testdev_balanced_questions.json"
    path.write_text(path.read_text().replace("blue", "green"))
    assert loaded("gqa", folder).digest != before


@pytest.mark.skipif(not POPE.is_dir(), reason="POPE's question files are not beside the project")
def test_popes_own_question_files(tmp_path):
    folder = tmp_path / "pope"
    folder.mkdir()
    names = set()
    for path in POPE.glob("coco_pope_*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
        names |= {json.loads(line)["image"] for line in path.read_text().splitlines()}
    (folder / "val2014").mkdir()
    image = benchmark_folders.png("coco")
    gone, *there = sorted(names)
    for name in there:
        (folder / "val2014" / name).write_bytes(image)
    assert len(names) == 500
    found = loaded("pope", tmp_path)
    assert problems(found) == {"missing image": 18}  # one image, six questions in each split
    assert {name: len(own) for name, own in found.questions.items()} == dict.fromkeys(
        ("random", "popular", "adversarial"), 2994
    )
    answers = Counter(x.answers for own in found.questions.values() for x in own)
    assert answers == {("yes",): 4491, ("no",): 4491}
    assert all(gone in sample.reason for sample in found.skipped)
