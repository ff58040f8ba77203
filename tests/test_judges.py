"""Rubrics, label probabilities and likelihood ratios, by hand-worked values."""

import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gno_dist.judges import labels, likelihood
from gno_dist.records import Scored, Unscored
from gno_dist.rubric import (
    BooleanRubric,
    ChoiceRubric,
    Rubric,
    ScoreRubric,
    outcome,
    scale,
    threshold_problem,
)

BOOLEAN = BooleanRubric(type="boolean", instructions="Is it right?")
SCORE = ScoreRubric(type="score", instructions="How good?", criteria=("bad", "fair", "good"))
CHOICE = ChoiceRubric(
    type="choice",
    instructions="Which fault?",
    criteria={"none": None, "rude": "impolite", "off": None},
)
ONE_OPTION = ChoiceRubric(type="choice", instructions="Which?", criteria={"only": None})
RUBRICS: dict[str, Rubric] = {"right": BOOLEAN, "grade": SCORE, "fault": CHOICE}


class TestRubric:
    def test_scales(self) -> None:
        assert [scale(rubric) for rubric in (BOOLEAN, SCORE, CHOICE)] == [(0, 1), (0, 2), (0, 1)]

    @pytest.mark.parametrize(
        ("rubric", "answer", "value"),
        [
            (BOOLEAN, {"probability": 0.73}, 0.73),
            (BOOLEAN, {"probability": 0}, 0.0),
            (SCORE, {"score": 1.4}, 1.4),
            (SCORE, {"score": 2}, 2.0),
            (CHOICE, {"choice": "none"}, 0.0),
            (CHOICE, {"choice": "rude"}, 0.5),
            (CHOICE, {"choice": "off"}, 1.0),
            (ONE_OPTION, {"choice": "only"}, 0.0),
        ],
    )
    def test_values(self, rubric: Rubric, answer: dict[str, Any], value: float) -> None:
        assert outcome(rubric, answer) == Scored(value=value)

    @pytest.mark.parametrize(
        ("rubric", "answer", "reason"),
        [
            (BOOLEAN, None, "no answer"),
            (BOOLEAN, {}, "not a finite number"),
            (BOOLEAN, {"probability": True}, "not a finite number"),
            (BOOLEAN, {"probability": math.nan}, "not a finite number"),
            (BOOLEAN, {"probability": "0.5"}, "not a finite number"),
            (BOOLEAN, {"probability": 1.01}, r"outside \[0, 1\]"),
            (SCORE, {"score": 3}, r"outside \[0, 2\]"),
            (SCORE, {"score": -0.1}, r"outside \[0, 2\]"),
            (CHOICE, {"choice": "None"}, "is none of"),
            (CHOICE, {"choice": ["none"]}, "is none of"),
        ],
    )
    def test_an_invalid_answer_is_unscored_never_clamped_or_zero(
        self, rubric: Rubric, answer: dict[str, Any] | None, reason: str
    ) -> None:
        result = outcome(rubric, answer)
        assert isinstance(result, Unscored)
        assert re.search(reason, result.reason)

    @pytest.mark.parametrize(
        ("rubric", "threshold", "problem"),
        [
            (BOOLEAN, 0.7, None),
            (BOOLEAN, 1.2, "outside"),
            (SCORE, 1.9, None),
            (CHOICE, 0.5, "no mean to gate"),
        ],
    )
    def test_a_threshold_that_cannot_gate_is_a_problem(
        self, rubric: Rubric, threshold: float, problem: str | None
    ) -> None:
        found = threshold_problem(rubric, threshold)
        assert found is None if problem is None else problem in (found or "")


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


class TestLabels:
    def test_one_question_a_label_order_sorted_by_rubric_id(self) -> None:
        asked = labels.questions(RUBRICS)
        assert [question["id"] for question in asked] == ["fault"] * 3 + ["grade"] + ["right"] * 2

    def test_choices_are_shown_in_every_cyclic_shift_labels_in_rubric_order(self) -> None:
        shifts = [q["labels"] for q in labels.questions({"fault": CHOICE})]
        assert shifts == [[" A", " B", " C"], [" C", " A", " B"], [" B", " C", " A"]]
        second = labels.questions({"fault": CHOICE})[1]["suffix"]
        assert "A: rude - impolite\nB: off\nC: none\n" in second

    def test_boolean_averages_both_orders_in_log_space(self) -> None:
        asked = labels.questions({"right": BOOLEAN})
        answers = labels.answers({"right": BOOLEAN}, asked, [logs(0.4, 0.1), logs(0.2, 0.2)])
        # orders: .8/.2 and .5/.5; geometric means sqrt(.4), sqrt(.1), renormalised: 2/3
        assert answers["right"]["probability"] == pytest.approx(2 / 3, abs=1e-12)
        assert answers["right"]["label_mass"] == pytest.approx(0.4), "the least over the orders"

    def test_score_is_the_expected_level(self) -> None:
        asked = labels.questions({"grade": SCORE})
        answers = labels.answers({"grade": SCORE}, asked, [logs(0.1, 0.2, 0.1)])
        assert answers["grade"]["score"] == pytest.approx(0.2 * 1 / 0.4 + 0.1 * 2 / 0.4)
        assert answers["grade"]["probabilities"]["1"] == pytest.approx(0.5)

    def test_a_tie_of_options_goes_to_the_first(self) -> None:
        asked = labels.questions({"fault": CHOICE})
        answers = labels.answers({"fault": CHOICE}, asked, [logs(0.2, 0.2, 0.1)] * 3)
        assert answers["fault"]["choice"] == "none"

    def test_position_bias_of_letters_cancels(self) -> None:
        """A judge that only likes the letter A gives every option the same probability."""
        asked = labels.questions({"fault": CHOICE})
        likes_a = [logs(*(0.8 if mark == " A" else 0.1 for mark in q["labels"])) for q in asked]
        answers = labels.answers({"fault": CHOICE}, asked, likes_a)
        assert list(answers["fault"]["probabilities"].values()) == pytest.approx([1 / 3] * 3)

    @given(st.lists(st.floats(-80, -0.1), min_size=3, max_size=3))
    @example([-44.0, -44.0, -8.0])
    def test_probabilities_are_renormalised(self, row: list[float]) -> None:
        answer = labels.answers({"grade": SCORE}, labels.questions({"grade": SCORE}), [row])[
            "grade"
        ]
        assert math.fsum(answer["probabilities"].values()) == pytest.approx(1.0)
        assert 0 <= answer["score"] <= 2

    def test_missing_answers_are_unscored(self) -> None:
        assert set(map(type, labels.outcomes(RUBRICS, None).values())) == {Unscored}
        partly = labels.outcomes(RUBRICS, {"right": {"probability": 0.5}})
        assert [type(partly[name]) for name in RUBRICS] == [Scored, Unscored, Unscored]

    def test_equal_states_make_equal_prompts(self) -> None:
        one = labels.state_segments({"input": {"a": 1, "b": [2]}, "output": "text"})
        two = labels.state_segments({"input": {"b": [2], "a": 1}, "output": "text"})
        assert one == two
        assert "Output: text\n" in one[0]

    def test_more_options_than_letters_are_refused(self) -> None:
        many = dict.fromkeys(map(str, range(27)))
        with pytest.raises(ValueError, match="at most 26 items"):
            ChoiceRubric(type="choice", instructions="?", criteria=many)


class TestLikelihood:
    def test_items_stand_in_the_documented_order(self) -> None:
        items = likelihood.items("Why?", ["T\nbecause"], "So. [1]", ["cause", "effect"])
        assert [item["continuation"] for item in items] == [" So."] * 3 + [
            " cause",
            " cause",
            " effect",
            " effect",
        ]
        assert "Question: Why?" in items[0]["prefix"][-1]
        assert "Why?" not in "".join(items[1]["prefix"]), "without the question"
        assert "because" not in "".join(items[2]["prefix"]), "without the sources"
        assert items[3]["prefix"][-1] == "Answer: So.\nTopic:"
        assert items[4]["prefix"][-1] == "Answer:\nTopic:"

    def test_ratios_by_hand(self) -> None:
        found = likelihood.ratios([-10.0, -14.0, -19.0, -2.0, -5.0, -4.0, -3.0])
        assert found == {"relevance": 4.0, "groundedness": 9.0, "completeness": [3.0, -1.0]}

    def test_without_calibration_nothing_is_scored(self) -> None:
        judged = {"relevance": 4.0, "groundedness": 9.0, "completeness": []}
        result = likelihood.outcome("relevance", judged, "0" * 64)
        assert isinstance(result, Unscored)
        assert "no calibration" in result.reason

    def test_the_logistic_and_the_mean_over_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fitted = {"m": {"completeness": {"intercept": -1.0, "slope": 0.5}}}
        monkeypatch.setattr(likelihood, "calibration", lambda: fitted)
        result = likelihood.outcome("completeness", {"completeness": [2.0, 4.0]}, "m")
        assert isinstance(result, Scored)
        assert result.value == pytest.approx((0.5 + 1 / (1 + math.exp(-1))) / 2)
        assert isinstance(likelihood.outcome("completeness", {"completeness": []}, "m"), Unscored)

    @given(st.floats(-1e6, 1e6))
    def test_the_logistic_never_overflows(self, x: float) -> None:
        assert 0.0 <= likelihood._logistic(x) <= 1.0

    def test_shipped_calibrations_rise_with_the_ratio(self) -> None:
        assert likelihood.calibration()
        for qualities in likelihood.calibration().values():
            assert set(qualities) == set(likelihood.QUALITIES)
            assert all(fit["slope"] > 0 for fit in qualities.values())
