"""Benchmarks end to end: every one on a small model, resumed, in one table with the average."""

import json
import shutil

import pytest

import eos
from eos import cli
from eos.evaluation.benchmarks.loading import load
from eos.evaluation.benchmarks.questions import Reply
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.overall import Overall, overall_of, paper_average
from eos.evaluation.results import Results
from eos.evaluation.suite import benchmark_names, evaluate_benchmarks
from eos.evaluation.totals import Total
from eos.report.overall import overall_markdown
from tests.benchmark_folders import ROWS, build

# the paper's main table: POPE, SQA, MME, GQA, TextVQA, SEED, MMStar, RWQA, AI2D, OCRBench, ChartQA,
# MMB-en, and its overall average; five methods each at 192, 128, 64 and 16 tokens
PAPER = """
85.22 64.15 1825 59.41 44.24 64.26 34.97 53.59 54.73 30.60 17.52 63.92 53.15
85.79 64.80 1869 60.95 45.25 65.59 33.98 54.77 55.38 30.40 18.12 63.75 53.79
85.09 64.45 1858 59.64 43.25 64.62 33.77 53.73 55.18 28.90 16.96 63.40 52.95
52.38 60.54 1287 43.57 8.17 39.06 24.64 43.92 50.36 2.40 11.80 24.14 33.91
85.78 64.85 1876 60.92 45.29 65.71 34.27 55.03 55.67 30.60 18.40 63.83 53.95
84.88 64.06 1806 58.38 42.55 63.60 34.77 52.16 54.44 27.80 16.08 63.66 52.24
85.70 64.85 1845 59.49 42.52 64.72 34.06 54.90 54.63 27.80 17.04 63.40 52.92
84.83 65.49 1830 57.43 36.51 62.80 34.02 52.16 54.73 24.40 15.08 62.46 51.27
43.50 60.14 1150 39.23 7.85 36.16 23.57 43.01 50.23 2.50 11.88 21.22 31.70
85.89 64.85 1856 59.92 42.33 64.55 34.77 54.90 54.95 27.40 17.32 63.23 53.03
82.58 64.80 1727 53.79 34.21 56.78 31.86 48.50 52.72 20.60 14.12 59.97 48.47
82.79 65.05 1755 54.05 32.49 57.50 31.53 50.98 53.08 18.70 14.80 60.40 48.67
76.77 65.59 1622 49.59 22.69 50.45 29.96 45.88 51.68 12.90 12.88 53.01 44.11
42.11 60.44 1135 38.95 8.13 35.97 23.36 43.40 50.52 2.50 11.68 20.70 31.52
84.52 65.54 1781 54.91 31.11 59.14 32.79 51.37 53.59 18.50 14.56 61.08 49.23
63.28 65.00 1472 44.20 18.36 47.00 28.12 42.61 51.46 6.00 12.80 41.84 39.44
67.19 65.64 1432 44.53 18.66 44.63 27.89 44.58 50.65 6.30 12.60 41.07 39.57
43.29 61.28 1150 39.38 8.73 37.15 24.02 43.40 50.29 2.80 11.76 23.63 32.23
41.78 60.68 1142 38.86 8.18 35.95 22.98 43.27 50.26 2.20 11.64 20.62 31.43
76.86 64.85 1510 46.08 16.84 47.60 28.41 45.88 50.81 5.70 12.48 44.59 41.17
"""
PLAN = "fastv@16"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Keep what `datasets` caches out of the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("benchmarks"))


@pytest.fixture(scope="module")
def done(folder, sibling, tmp_path_factory):
    """All twelve, evaluated."""
    out = tmp_path_factory.mktemp("runs")
    return out, evaluate_benchmarks(sibling, [PLAN], tasks="paper", data=folder, out=out)


@pytest.mark.parametrize("row", [line.split() for line in PAPER.split("\n") if line])
def test_the_average_is_that_of_the_papers_main_table(row):
    *scores, average = map(float, row)
    given = {
        name: Total(value=score, stderr=1.2) for name, score in zip(BENCHMARKS, scores, strict=True)
    }
    found = paper_average(given)
    assert round(found.mean, 2) == average
    assert found.stderr == pytest.approx(1.2 * (11 + 1 / 28**2) ** 0.5 / 12, abs=1e-6)
    assert paper_average({name: x for name, x in given.items() if name != "mme"}) is None
    plain = sum(scores) / 12
    assert round(plain, 2) != average  # the control: MME unscaled


def test_all_benchmarks_run_and_score_what_their_rules_give(done, folder):
    out, overall = done
    assert list(overall.questions) == list(BENCHMARKS)
    assert [row.name for row in overall.rows] == ["full", PLAN]
    for name, benchmark in BENCHMARKS.items():
        results = Results.load(out / name / "results.json")
        questions = load(benchmark, folder, limit=None, seed=0).questions
        lines = (out / name / "predictions.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        for run in ("full", PLAN):
            own = [x for x in told if x["run"] == run]
            answered = []
            for x in own:
                question = questions[x["family"]][x["number"]]
                assert x["id"] == question.id
                assert x["score"] == benchmark.score(x["prediction"], question)
                answered.append(Reply(question, x["prediction"], x["score"]))
            assert len(own) == overall.questions[name]
            assert results.row(run).average.n == len(own)
            headline = next(iter(results.row(run).totals.values()))
            assert overall.row(run).scores[name] == headline
            if name in ("gqa", "textvqa", "chartqa", "scienceqa"):  # plain means
                mean = 100 * sum(x.score for x in answered) / len(answered)
                assert headline.value == pytest.approx(mean, abs=1e-5)
        assert results.problems == {"missing question": benchmark.size - len(own)}
        [line] = (out / name / "skipped.jsonl").read_text().splitlines()
        assert json.loads(line)["kind"] == "missing question"
        assert results.row("full").totals.keys() == benchmark.figures.keys()
        assert str(results).splitlines()[-3].split() == ["run", *benchmark.figures]
        assert cli.main(["validate", str(out / name / "results.json")]) == 0


def test_the_table_has_the_papers_columns(done):
    out, overall = done
    assert Overall.load(out / "overall.json") == overall
    assert cli.main(["validate", str(out / "overall.json")]) == 0
    text = overall_markdown(overall)
    head = text.splitlines()[0]
    titles = [benchmark.title for benchmark in BENCHMARKS.values()]
    assert titles[:3] + titles[-2:] == ["POPE", "SQA", "MME", "ChartQA", "MMB-en"]
    assert head == f"| run | final | mean | FLOPs | {' | '.join(titles)} | average |"
    assert "POPE 12 of 9000" in text
    assert "missing question × 8988" in text
    assert overall.row("full").average is not None


def answers_of(name, right):
    """Answer as worked by hand: rightly where told so."""
    rows = ROWS[name]
    other = {"yes": "no", "no": "yes"}
    for row, good in zip(rows, right, strict=True):
        answer = row["answer"].lower()
        yield answer if good else other[answer]


@pytest.mark.parametrize(
    ("name", "right", "figures"),
    [
        ("pope", [1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1],
         {"accuracy": 100 * (1 + 1 / 2 + 1 / 2) / 3, "F1": 100 * (1 + 1 / 2 + 0) / 3}),
        ("mme", [1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0],
         {"total": 75 + 50 + 200 + 25, "perception": 325, "cognition": 25, "accuracy+": 50}),
    ],
)  # fmt: skip
def test_predictions_worked_by_hand_give_their_figures(
    name, right, figures, done, folder, sibling, tmp_path
):
    shutil.copytree(done[0] / name, tmp_path / name)
    path = tmp_path / name / "predictions.jsonl"
    said = list(answers_of(name, right))
    questions = load(BENCHMARKS[name], folder, limit=None, seed=0).questions
    texts = {}
    for row, text, good in zip(ROWS[name], said, right, strict=True):
        key = row["question_id"]
        full = f"{row['category']}/{key}" if name == "pope" else f"{key}/{row['question']}"
        texts[full] = (text, float(good))
    lines = []
    for line in path.read_text().splitlines():
        found = json.loads(line)
        if found["run"] == "full":
            question = questions[found["family"]][found["number"]]
            text, score = texts[found["id"]]
            assert BENCHMARKS[name].score(text, question) == score
            found |= {"prediction": text, "score": score}
        lines.append(json.dumps(found) + "\n")
    path.write_text("".join(lines))
    results = eos.evaluate(sibling, [PLAN], task=name, data=folder, out=tmp_path / name)
    row = results.row("full")
    for figure, value in figures.items():
        assert row.totals[figure].value == pytest.approx(value, abs=1e-5)
    paired = results.row(PLAN).totals[next(iter(figures))]
    first = row.totals[next(iter(figures))].value
    assert paired.difference.points == pytest.approx(paired.value - first, abs=1e-5)


def test_an_interrupted_run_resumes_to_the_same_files(done, folder, sibling, tmp_path):
    for name in ("pope", "gqa"):
        shutil.copytree(done[0] / name, tmp_path / name)
    lines = (tmp_path / "pope" / "predictions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "pope" / "predictions.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    shutil.rmtree(tmp_path / "gqa")
    evaluate_benchmarks(sibling, [PLAN], tasks=["gqa", "pope"], data=folder, out=tmp_path)
    for name in ("pope", "gqa"):
        for file in ("predictions.jsonl", "results.json", "skipped.jsonl"):
            assert (tmp_path / name / file).read_bytes() == (done[0] / name / file).read_bytes()
    assert Overall.load(tmp_path / "overall.json").row("full").average is None  # two of twelve


def test_other_questions_or_prompts_are_refused(done, folder, sibling, tmp_path):
    shutil.copytree(done[0] / "gqa", tmp_path / "gqa")
    with pytest.raises(eos.ConfigError, match="expected data 'gqa llava"):
        eos.evaluate(sibling, [PLAN], task="gqa", data=folder, out=tmp_path / "gqa", prompts="qwen")
    with pytest.raises(eos.ConfigError, match="expected limit 3, found 2"):
        eos.evaluate(sibling, [PLAN], task="gqa", data=folder, out=tmp_path / "gqa", limit=2)


def test_the_command(folder, sibling, tmp_path, capsys):
    command = ["eval", "--backbone", str(sibling), "--out", str(tmp_path / "out"), "--quiet"]
    command += ["--tasks", "gqa,pope", "--limit", "2"]
    document = tmp_path / "table.md"
    assert cli.main([*command, "--data", str(folder), "--markdown", str(document)]) == 0
    shown = capsys.readouterr()
    assert "POPE 6 of 9000, GQA 2 of 12578" in " ".join(shown.out.split())
    assert "| POPE | GQA | average |" in document.read_text().splitlines()[0]
    assert cli.main([*command, "--data", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == {"pope": 6, "gqa": 2}
    assert cli.main([*command, "--data", str(folder / "pope")]) == 1
    error = capsys.readouterr().err
    assert "2 problems" in error
    assert "testdev_balanced_questions.json (GQA, questions1.2)" in error
    assert cli.main([*command, "--data", str(tmp_path / "none")]) == 1
    assert "expected a folder of benchmarks" in capsys.readouterr().err
    assert cli.main([*command, "--data", str(folder), "--images", str(folder)]) == 1
    assert "expected no --images with benchmarks" in capsys.readouterr().err
    assert cli.main([*command[:-4], "--tasks", "pope,gpa", "--data", str(folder)]) == 1
    assert "found gpa among 'pope,gpa'" in capsys.readouterr().err
    assert cli.main([*command[:-4], "--tasks", "pop"]) == 1
    assert "did you mean 'pope'?" in capsys.readouterr().err


def test_names_and_misuse(folder, sibling, tmp_path):
    assert benchmark_names("mmbench,pope") == ["pope", "mmbench"]
    assert benchmark_names("paper") == list(BENCHMARKS)
    with pytest.raises(eos.ConfigError, match="expected benchmarks of pope"):
        evaluate_benchmarks(sibling, tasks="mini", out=tmp_path)
    with pytest.raises(eos.ConfigError, match="expected metric with data only"):
        eos.evaluate(sibling, task="pope", data=folder, metric="exact", out=tmp_path)
    with pytest.raises(eos.ConfigError, match="expected a benchmark with the folder"):
        eos.evaluate(sibling, task="mini", data=folder, out=tmp_path)
    with pytest.raises(eos.ConfigError, match="expected a limit of at least 2; found 1"):
        eos.evaluate(sibling, task="pope", data=folder, limit=1, out=tmp_path)
    with pytest.raises(eos.ConfigError, match="expected results of pope"):
        overall_of({})


def test_benchmarks_are_listed(capsys):
    assert cli.main(["ls", "tasks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tasks"]
    assert list(found) == ["mini", *BENCHMARKS]
    assert "arXiv:2305.10355" in found["pope"]
