"""Tasks: the metric on predictions worked by hand, families by name, the same questions again."""

import pytest

from eos import ConfigError
from eos.evaluation.answering import BLANK_COLOR, batches, blanked
from eos.evaluation.tasks import TASKS, Item, exact_match, find_task
from eos.miniature.world import EVALUATED, SPLITS


@pytest.mark.parametrize(
    ("prediction", "answer", "score"),
    [
        ("yes", "yes", True),
        (" yes\n", "yes", True),
        ("no", "yes", False),
        ("yes yes", "yes", False),
        ("", "yes", False),
        ("Yes", "yes", False),
        ("3 7 1", "3 7 1", True),
        ("3 7", "3 7 1", False),
        ("3 7 1 0", "3 7 1", False),
        ("7 3 1", "3 7 1", False),
        ("371", "3 7 1", False),
    ],
)
def test_exact_match_by_hand(prediction, answer, score):
    assert exact_match(prediction, [answer]) == score
    assert exact_match(prediction, ["other", answer]) == score  # any reference will do
    assert exact_match(prediction, []) == 0


def test_mini_has_all_families_of_the_world_in_two_groups():
    task = find_task("mini")
    assert tuple(task.families) == EVALUATED
    assert len(EVALUATED) == 15
    assert task.splits == tuple(SPLITS)
    assert task.groups == ("prior", "extended")


def test_families_are_picked_in_the_order_of_the_task():
    task = find_task("mini:counting, presence")
    assert list(task.families) == ["presence", "counting"]
    assert list(TASKS["mini"].families) == list(find_task("mini").families)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mimi", "found 'mimi'; did you mean 'mini'"),
        ("zzz", "expected a task: mini; found 'zzz'$"),
        ("mini:presense", "found 'presense'; did you mean 'presence'"),
        ("mini:presence,everything", "found 'everything'"),  # teaches, is not evaluated
    ],
)
def test_a_misspelt_name_is_explained(text, message):
    with pytest.raises(ConfigError, match=message):
        find_task(text)


@pytest.mark.parametrize("name", TASKS)
def test_every_family_of_every_task_makes_questions(name):
    task = TASKS[name]
    for family in task.families:
        items = [task.item("validation", family, number=n, seed=5) for n in (0, 1)]
        again = task.item("validation", family, number=1, seed=5)
        assert (again.id, again.answers) == (items[1].id, items[1].answers)
        assert items[0].id != items[1].id
        assert all(item.chance is None or 0 <= item.chance < 1 for item in items)
        assert all(item.answers and all(item.answers) for item in items)
        answer = items[0].answers[0]
        assert 0 < task.metric(answer, items[0].answers) <= 1
        assert task.metric(f"{answer} {answer}", items[0].answers) == 0


def asking(text, number=0):
    return Item(
        [{"role": "user", "content": [{"type": "text", "text": text}]}], ("a",), 0.5, str(number)
    )


def test_batches_hold_every_question_once_and_those_of_a_length_together():
    lengths = [3, 1, 2, 3, 1, 2, 2]
    items = {n: asking("word " * length, n) for n, length in enumerate(lengths)}
    found = list(batches(items, 2, visual_size=lambda item: 9))
    assert [list(batch) for batch in found] == [[1, 4], [2, 5], [6, 0], [3]]
    assert all(batch[number] is items[number] for batch in found for number in batch)


def test_batches_hold_questions_of_similar_visual_sizes():
    items = {n: asking("word " * length, n) for n, length in enumerate([1, 3, 1, 2, 2])}
    found = list(batches(items, 2, visual_size=lambda item: 18 if item.id in "134" else 36))
    assert [list(batch) for batch in found] == [[3, 4], [1, 0], [2]]


def test_a_blank_image_is_grey_and_the_question_stays():
    item = TASKS["mini"].item("test", "presence", number=0, seed=0)
    blank = blanked(item)
    image, text = blank.messages[0]["content"]
    assert image["image"].getcolors() == [(96 * 96, BLANK_COLOR)]
    assert text == item.messages[0]["content"][1]
    assert (blank.answers, blank.id) == (item.answers, item.id)
    assert len(item.messages[0]["content"][0]["image"].getcolors(96 * 96)) > 1  # the true one stays
