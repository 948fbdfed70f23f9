"""Metrics of benchmarks on predictions worked by hand, and beside lmms-eval's own functions."""

import sys
from importlib import import_module
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from eos.evaluation.benchmarks.answers import chosen_option, same_text, yes_no_of
from eos.evaluation.benchmarks.questions import Query, Reply
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.benchmarks.vqa_words import normalised, vqa_accuracy
from eos.evaluation.totals import jackknife, sums_of, totals

FOUR = ("a red cat", "a dog", "a bus", "two men")


def asked(*answers, family="all", cluster="", name="q", options=(), kind=""):
    return Query(name, bytes, "?", answers, family, cluster or name, options, "", kind)


def figures(name, answered):
    """Estimate a benchmark's figures of answered questions."""
    groups = {}
    for x in answered:
        groups.setdefault((x.question.cluster, x.question.family), []).append(x)
    columns = {key: BENCHMARKS[name].columns(group) for key, group in groups.items()}
    families = list(dict.fromkeys(x.question.family for x in answered))
    return totals(BENCHMARKS[name].figures, families, sums_of(columns, families))


def answered(name, text, question):
    return Reply(question, text, BENCHMARKS[name].score(text, question))


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("B", "B"),
        (" b.\n", "B"),
        ("(C)", "C"),
        ("D. two men", "D"),
        ("A: a red cat", "A"),
        ("The answer is B.", "B"),
        ("The correct option is (C), since …", "C"),
        ("A dog", "B"),  # an article, not an option
        ("It is a bus.", "C"),
        ("a dog and a bus", None),  # two options
        ("E", None),  # there are four
        ("The answer is E.", None),
        ("", None),
        ("a tree", None),
    ],
)
def test_options_are_recognised(text, option):
    assert chosen_option(text, FOUR) == option


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("No, there is not. Yes?", "no"),
        ("Yes, there is a dog. It is not red.", "yes"),
        ("There is not", "no"),
        ("nothing", None),  # no word of itself
        ("yesterday", None),
        ("", None),
    ],
)
def test_yes_and_no_are_recognised(text, said):
    assert yes_no_of(text) == said


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Nokia!", "nokia"),
        ("10:10", "10:10"),
        ("two dogs", "2 dogs"),
        ("1,000", "1000"),
        ("7.5 in.", "7.5 in"),
        ("dont", "don't"),
        ("couldnt've", "couldn't've"),
        ("t-shirt", "t shirt"),
        ("x - y", "x y"),
        ("a/b", "a b"),  # before articles are dropped: the letter a is one
        ("joe's", "joe 's"),
    ],
)
def test_words_are_normalised_as_by_the_vqa_server(text, plain):
    assert normalised(text) == (plain if text != "a/b" else "b")


def test_vqa_accuracy_leaves_one_annotator_out_at_a_time():
    answers = ["nokia"] * 3 + ["toshiba"] * 2 + ["dakota"] + ["no"] * 4
    assert vqa_accuracy("Nokia", answers) == pytest.approx((3 * 2 / 3 + 7) / 10)
    assert vqa_accuracy("toshiba", answers) == pytest.approx((2 * 1 / 3 + 8 * 2 / 3) / 10)
    assert vqa_accuracy("dakota", answers) == pytest.approx(9 * (1 / 3) / 10)
    assert vqa_accuracy("no", answers) == 1
    assert vqa_accuracy("nokia phone", answers) == 0


@pytest.mark.parametrize(
    ("name", "question", "right", "wrong"),
    [
        ("gqa", asked("traffic light"), ["Traffic light.", " traffic light"], ["light", ""]),
        ("realworldqa", asked("B", kind="options"), ["B", "B.", "(B)"], ["A", "2", "left"]),
        ("realworldqa", asked("2", kind="words"), ["2", "2."], ["3", "B", "22"]),
        ("chartqa", asked("57.5"), ["57.5", "60.3", "54.7", "57.50"], ["60.4", "54.6", "57.5%"]),
        ("chartqa", asked("14"), ["14", "14.7"], ["14 bars", "13", "fourteen"]),
        ("chartqa", asked("25%"), ["25%", "0.25", "26%"], ["25", "27%"]),
        ("chartqa", asked("Norway"), ["norway", " Norway"], ["Norway.", "the Norway", "Sweden"]),
        ("chartqa", asked("0"), ["0"], ["0.01", "1"]),
        ("ocrbench", asked("Exit", "way out"), ["EXIT", "It says: exit now", "WAY OUT", "ＥＸＩＴ"],
         ["exi", "ex it", ""]),
        ("ocrbench", asked("x ^ 2", kind="HME100k"), ["x^2", "= x^ 2"], ["X^2", "x2"]),
        ("scienceqa", asked("B", options=FOUR), ["B", "B. a dog", "a dog"], ["A", "cat", ""]),
        ("mme", asked("yes"), ["Yes", "yes, it is"], ["no", "maybe"]),
    ],
)  # fmt: skip
def test_scores_by_hand(name, question, right, wrong):
    for text in right:
        assert BENCHMARKS[name].score(text, question) == 1, text
    for text in wrong:
        assert BENCHMARKS[name].score(text, question) == 0, text


def test_every_benchmark_scores_its_own_answer_and_no_other():
    given = {"textvqa": ("seven",) * 10, "pope": ("no",), "mme": ("no",)}
    options = {"gqa": ("seven",), "chartqa": ("7",), "ocrbench": ("seven",)}
    for name, benchmark in BENCHMARKS.items():
        answers = {**given, **options}.get(name, ("C",))
        question = asked(*answers, options=FOUR if answers == ("C",) else (), kind="options")
        assert benchmark.score(answers[0], question) == 1, name
        assert benchmark.score("what", question) == 0, name


def pope_answers():
    """Three splits with counts of their own, two questions on each image."""
    said = {
        "random": ["yes", "yes", "no", "no"],
        "popular": ["yes", "no", "yes", "hm"],
        "adversarial": ["no", "no", "yes", "no"],
    }
    true = ["yes", "yes", "no", "no"]
    return [
        answered("pope", text, asked(truth, family=split, cluster=f"image {number // 2}"))
        for split, texts in said.items()
        for number, (text, truth) in enumerate(zip(texts, true, strict=True))
    ]


def test_pope_by_hand():
    found = figures("pope", pope_answers())
    # right: 4, 1 and 1 of 4; F1: 1; 1 of 2 true and 2 said; 0
    assert found["accuracy"].value == pytest.approx(100 * (1 + 1 / 4 + 1 / 4) / 3)
    assert found["F1"].value == pytest.approx(100 * (1 + 2 / 4 + 0) / 3)
    assert found["yes"].value == pytest.approx(100 * (2 + 2 + 1) / 12)  # said, not true
    assert found["unrecognised"].value == pytest.approx(100 / 12)
    assert next(iter(found)) == "accuracy"
    # without one image: 2, 1, 0 of 2 (the first image left: true yes), and 2, 0, 1 of 2
    assert found["accuracy"].stderr == pytest.approx(0.0, abs=1e-6)
    assert found["yes"].stderr == pytest.approx(jackknife(np.array([100 * 3 / 6, 100 * 2 / 6])))


def test_mme_by_hand():
    pairs = {
        ("color", "a"): ("yes", "no"),  # both right
        ("color", "b"): ("yes", "yes"),  # one
        ("color", "c"): ("no", "yes"),  # none
        ("code_reasoning", "d"): ("yes", "no"),
        ("code_reasoning", "e"): ("what", "no"),
    }
    found = figures(
        "mme",
        [
            answered("mme", text, asked(truth, family=kind, cluster=image))
            for (kind, image), texts in pairs.items()
            for text, truth in zip(texts, ("yes", "no"), strict=True)
        ],
    )
    assert found["perception"].value == pytest.approx(100 * 3 / 6 + 100 * 1 / 3)
    assert found["cognition"].value == pytest.approx(100 * 3 / 4 + 100 * 1 / 2)
    assert found["total"].value == pytest.approx(found["perception"].value + 125)
    assert found["accuracy+"].value == pytest.approx(100 * 2 / 5)
    assert found["accuracy"].value == pytest.approx(60)
    # leave out each image: the categories' points without it, of five images
    left_out = [125 + x for x in (25.0, 50 + 50, 75 + 50)] + [50 + 100 / 3 + x for x in (50, 200)]
    expected = sqrt(4 / 5 * sum((x - np.mean(left_out)) ** 2 for x in left_out))
    assert found["total"].stderr == pytest.approx(expected)


def test_mmbench_counts_a_question_only_if_every_rotation_is_right():
    rotations = {"1": ["B", "A"], "7": ["B", "A", "B"]}
    true = {"1": ["B", "A"], "7": ["B", "A", "C"]}
    found = figures(
        "mmbench",
        [
            answered(
                "mmbench",
                text,
                asked(
                    answer, name=f"{place * 1_000_000 + int(group)}", cluster=group, options=FOUR
                ),
            )
            for group in rotations
            for place, (text, answer) in enumerate(zip(rotations[group], true[group], strict=True))
        ],
    )
    assert found["circular"].value == 50
    assert found["single"].value == 100
    assert found["circular"].stderr == pytest.approx(50)


def test_mmstar_averages_fine_categories():
    texts = {"geometry": ["A"], "image emotion": ["A", "B", "C", "D"]}
    found = figures(
        "mmstar",
        [
            answered("mmstar", text, asked("A", family=kind, name=f"{kind} {number}"))
            for kind, own in texts.items()
            for number, text in enumerate(own)
        ],
    )
    assert found["average"].value == pytest.approx((100 + 25) / 2)
    assert found["accuracy"].value == pytest.approx(40)


def test_the_jackknife_is_the_usual_error_of_a_mean_and_sees_clusters():
    scores = np.array([1, 1, 0, 1, 0, 0, 1, 1.0])
    alone = [Reply(asked("a", name=str(n)), "", x) for n, x in enumerate(scores)]
    found = figures("gqa", alone)["accuracy"]
    assert found.value == pytest.approx(62.5)
    assert found.stderr == pytest.approx(100 * scores.std(ddof=1) / sqrt(8))
    doubled = [
        Reply(asked("a", name=f"{n} {m}", cluster=str(n)), "", x)
        for n, x in enumerate(scores)
        for m in (0, 1)
    ]
    again = figures("gqa", doubled)["accuracy"]
    assert again.stderr == pytest.approx(found.stderr)  # twice the questions tell nothing new
    apart = [Reply(asked("a", name=x.question.id), "", x.score) for x in doubled]
    assert figures("gqa", apart)["accuracy"].stderr < 0.75 * found.stderr


def test_differences_are_paired():
    families = ["all"]
    own = np.array([[[x, 1.0]] for x in (1, 1, 0, 1)])
    full = np.array([[[x, 1.0]] for x in (1, 0, 0, 1)])
    found = totals(BENCHMARKS["gqa"].figures, families, own, full)["accuracy"].difference
    assert found.points == pytest.approx(25)
    assert found.stderr == pytest.approx(25)  # one of four differs
    same = totals(BENCHMARKS["gqa"].figures, families, own, own)["accuracy"].difference
    assert (same.points, same.stderr) == (0, 0)


PACKAGES = ["", ".tasks", ".tasks._task_utils", ".tasks.mmbench", ".api", ".filters"]


@pytest.fixture
def harness(monkeypatch):
    """Load lmms-eval's functions without the rest of the package."""
    spec = find_spec("lmms_eval")
    if spec is None or find_spec("loguru") is None:
        pytest.skip("lmms-eval and loguru are not installed: nothing to compare with")
    for name in [*PACKAGES, *(f".tasks.{x}" for x in (*BENCHMARKS, "seedbench"))]:
        module = ModuleType(f"lmms_eval{name}")
        module.__path__ = [str(Path(spec.submodule_search_locations[0], *name.split(".")[1:]))]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    yield lambda name: import_module(f"lmms_eval.tasks.{name}")
    for name in [x for x in sys.modules if x.startswith("lmms_eval")]:
        monkeypatch.delitem(sys.modules, name)


SAID = ["B", "B.", "B. a dog", "A", "C. a bus", "D", "", "what", "Yes", "no", "Yes.", "0.25"]


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # lmms-eval's own
def test_scores_are_those_of_lmms_eval(harness):
    options = asked("B", options=FOUR)
    for text in SAID:
        doc = {"choices": FOUR, "answer": 1}
        other = harness("scienceqa.utils").sqa_process_results(doc, [text])["exact_match"]
        assert BENCHMARKS["scienceqa"].score(text, options) == other, text
        row = {"answer": "B", "data_type": "image", "question_id": 1}
        [one] = [harness("seedbench.utils").seed_process_result(row, [text])["seed_image"]]
        other = harness("seedbench.utils").seed_aggregation_result([one])
        assert BENCHMARKS["seed"].score(text, options) == other, text
        other = harness("mmstar.utils").exact_match(text, "B")
        assert BENCHMARKS["mmstar"].score(text, asked("B")) == other, text
        for truth in ("25%", "B", "0.25", "Yes"):
            other = harness("chartqa.utils").relaxed_correctness(text, truth)
            assert BENCHMARKS["chartqa"].score(text, asked(truth)) == other, (text, truth)
        doc = {"answer": ["a dog", "Yes"], "dataset": "IIIT5K", "question_type": "x"}
        other = harness("ocrbench.utils").ocrbench_process_results(doc, [text])
        score = BENCHMARKS["ocrbench"].score(text, asked("a dog", "Yes"))
        assert score == other["ocrbench_accuracy"]["score"], text
        for truth, kind in (("B", "options"), ("Yes", "words"), ("0.25", "words")):
            rule = harness("realworldqa.utils").realworldqa_process_results
            score = BENCHMARKS["realworldqa"].score(text, asked(truth, kind=kind))
            assert score == rule({"answer": truth}, [text])["exact_match"], (text, truth)


def test_options_of_mmbench_are_those_of_lmms_eval(harness):
    pytest.importorskip("pandas", reason="lmms-eval reads MMBench with pandas")
    pytest.importorskip("requests", reason="lmms-eval's MMBench imports requests")
    evaluator = harness("mmbench.mmbench_evals").MMBench_Evaluator()
    options = dict(zip("ABCD", FOUR, strict=True))
    for text in (*SAID, "It is a bus.", "(D)", "a dog or a bus", "C)", "The answer is B."):
        other = evaluator.can_infer(text, dict(options)) or None
        assert chosen_option(text, FOUR) == other, text


def test_vqa_words_are_those_of_lmms_eval(harness):
    processor = harness("_task_utils.vqa_eval_metric").EvalAIAnswerProcessor()
    words = [*processor.CONTRACTIONS, *processor.CONTRACTIONS.values(), *processor.NUMBER_MAP]
    texts = ["A t-shirt, red.", "1,000.5", "St. John's", "(a) / b", "who? me!", "x=y+z", 'the "1"']
    for text in [*words, *texts]:
        assert normalised(text) == processor(text), text
    answers = ["nokia"] * 3 + ["toshiba"] * 2 + ["two"] * 5
    for text in ("Nokia.", "toshiba", "2", "dell"):
        found = harness("textvqa.utils").textvqa_process_results(
            {"answers": list(answers), "question_id": 1}, [text]
        )
        assert vqa_accuracy(text, answers) == pytest.approx(found["exact_match"])


def test_totals_are_those_of_lmms_eval(harness):
    pope = harness("pope.utils")
    own = [x for x in pope_answers() if x.question.family != "popular"]  # plain yes and no only
    rows = [
        {"score": x.score, "prediction": x.text, "ground_truth": x.question.answers[0]} for x in own
    ]
    found = figures("pope", own)
    assert found["accuracy"].value == pytest.approx(100 * pope.pope_aggregate_accuracy(rows))
    pooled = figures("pope", [pooled_family(x) for x in own])
    assert pooled["F1"].value == pytest.approx(100 * pope.pope_aggregate_f1_score(rows))
    # its ratio of yes counts the true answers, not those given
    assert pope.pope_aggregate_yes_ratio(rows) == 0.5
    assert found["yes"].value == pytest.approx(100 * 3 / 8)
    mme = harness("mme.utils")
    texts = [("yes", "no"), ("yes", "yes"), ("no", "yes"), ("yes", "no")]
    pairs = [
        answered("mme", text, asked(truth, family=("color", "OCR")[image > 1], cluster=str(image)))
        for image, own in enumerate(texts)
        for text, truth in zip(own, ("yes", "no"), strict=True)
    ]
    rows = [
        {"question_id": x.question.cluster, "category": x.question.family, "score": x.score}
        for x in pairs
    ]
    assert figures("mme", pairs)["total"].value == pytest.approx(mme.mme_aggregate_results(rows))


def pooled_family(x):
    return Reply(asked(*x.question.answers, cluster=x.question.cluster), x.text, x.score)


def test_gqa_leaves_case_and_punctuation_aside():
    assert same_text("T-shirt.", asked("t-shirt")) == 1
    assert same_text("shirt", asked("t-shirt")) == 0
