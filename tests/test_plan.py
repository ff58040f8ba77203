"""Plans: ids that are the same anywhere and depend on what decides a result, on nothing else."""

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gno_dist.backends.resolve import pools_of
from gno_dist.calls import PoolSpec
from gno_dist.errors import ConfigError
from gno_dist.plan import UNIT_VERSION, Plan, Unit, lints
from gno_dist.presets import Preset
from gno_dist.suite import LoadedSuite
from gno_dist.sweep import LoadedJob, load_job

from .conftest import PRESETS, QUERIES, SUITES, SWEEP, write_tiny

QUERY, ASK, SUPPORT = SUITES["query"], SUITES["ask"], SUITES["support"]
DEPTHS = "[fast, vector, hybrid, balanced, thorough]"


def plan_of(path: Path, trials: int | None = None) -> Plan:
    return Plan(load_job(path), pools_of, trials)


def name_of(unit: Unit) -> tuple[str, str, str, int]:
    return unit.suite.loaded.name, unit.case.id, unit.point.label, unit.trial


def ids(plan: Plan) -> dict[tuple[str, str, str, int], str]:
    found = {name_of(unit): unit.id for unit in plan.units()}
    assert len(found) == plan.n_units
    assert len(set(found.values())) == plan.n_units
    return found


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


class TestIdentity:
    def test_ids_are_pinned(self, tiny_job: LoadedJob) -> None:
        """When this fails, every earlier job is another plan: raise UNIT_VERSION and say so."""
        plan = Plan(tiny_job, pools_of)
        found = ids(plan)
        assert UNIT_VERSION == 1
        assert found["query", "q1", "one depth=fast", 0] == (
            "92722d9bf3d026281e7398e13b8ad4aabae2cd32e7c56eea15596ff0db795bd9"
        )
        assert found["query", "q4", "two depth=thorough", 0] == (
            "ab6fc06e11aef6c75a174f5d8e4fb97495db3fa7099a0930bf9d23971069677f"
        )
        assert found["ask", "a1", "one", 0] == (
            "518fa8f5e3a07c0106636dcd807cdc0a0511810d821f29908539b7bbeb625eb2"
        )
        assert found["support", "c2", "two", 0] == (
            "752bac1ec7e176d79dd6dc25ea938e432aab0fa49ad1e6a62a8b8d2c3b045b6b"
        )
        assert plan.digest == "d25449766d80a530c26b96c22dd321bfc6756760ab513eb6e0170036daa067b0"

    def test_the_same_files_make_the_same_plan_anywhere(self, tmp_path: Path) -> None:
        here, there = (plan_of(write_tiny(tmp_path / name)) for name in ("here", "there"))
        assert ids(here) == ids(there)
        assert here.digest == there.digest
        assert here.structure() == there.structure()

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            # What measures read is applied to stored output.
            ("queries", lambda text: changed(text, "relevance: 3", "relevance: 2")),
            ("queries", lambda text: changed(text, "- {id: q1,", "- {id: q1, relevant: [],")),
            ("queries", lambda text: changed(text, "- {id: q1,", "- {id: q1, note: x,")),
            ("query", lambda text: changed(text, '"Recall@5"', '"RR@10", "AP"')),
            ("query", lambda text: text + "thresholds: {nDCG@10: 0.9}\n"),
            ("query", lambda text: text + "description: another\n"),
            ("query", lambda text: changed(text, "subsets: {core: [q1, q3]}", "")),
            ("ask", lambda text: changed(text, "relevant: [alpha/backup.md]", "relevant: []")),
            ("support", lambda text: changed(text, "{id: c1,", "{id: c1, metadata: {by: me},")),
            ("support", lambda text: text + "thresholds: {tone: 1.5}\n"),
            # Key order.
            ("support", lambda text: changed(
                text, '{id: c1, input: "Where is my key?", output: "At the caretaker."}',
                '{output: "At the caretaker.", input: "Where is my key?", id: c1}')),
            ("presets", lambda text: changed(
                text, "    embedder: {backend: fake}\n    depth: thorough\n",
                "    depth: thorough\n    embedder: {backend: fake}\n")),
            # A default, said or not.
            ("query", lambda text: text + "trials: 1\n"),
            ("support", lambda text: changed(text, "c1,", "c1, expected: null,")),
            ("presets", lambda text: changed(text, "depth: thorough", "depth: thorough\n"
                "    search: {limit: 10, rrf_k: 60}\n    lexical: {title_weight: 2}")),
            ("presets", lambda text: changed(text, 'model: "two"', 'model: "two", n_ctx: 4096')),
            ("ask", lambda text: text + "settings: {search.fetch: 30}\n"),
            # camelCase.
            ("presets", lambda text: changed(text, 'model: "two"', 'maxTokens: 48, model: "two"')),
            # The job's own name, and what it would leave out if there were any.
            ("sweep", lambda text: changed(text, "name: tiny", "name: other\ndescription: x")),
            ("sweep", lambda text: text + "include: [{preset: one}, {preset: two}]\n"),
        ],
    )  # fmt: skip
    def test_what_decides_no_result_is_in_no_id(
        self, tmp_path: Path, name: str, change: Callable[[str], str]
    ) -> None:
        texts = {"queries": QUERIES, "presets": PRESETS, "sweep": SWEEP, **SUITES}
        plain = plan_of(write_tiny(tmp_path / "plain"))
        other = plan_of(write_tiny(tmp_path / "other", **{name: change(texts[name])}))
        assert ids(other) == ids(plain)
        assert other.digest == plain.digest

    def test_the_order_of_rubrics_is_in_no_id_but_that_of_options_is(self, tmp_path: Path) -> None:
        head, _, rubrics = SUPPORT.partition("rubrics:\n")
        backwards = "\n".join(reversed(rubrics.strip("\n").split("\n")))
        plain = ids(plan_of(write_tiny(tmp_path / "1")))
        moved = ids(plan_of(write_tiny(tmp_path / "2", support=f"{head}rubrics:\n{backwards}\n")))
        assert moved == plain
        # The judge is shown options in their order, and a choice's value is its position.
        options = changed(SUPPORT, "{nothing: null, rude: null}", "{rude: null, nothing: null}")
        turned = ids(plan_of(write_tiny(tmp_path / "3", support=options)))
        assert not {turned[name] for name in turned if name[0] == "support"} & set(plain.values())

    @pytest.mark.parametrize(
        ("name", "change", "suites"),
        [
            ("query", lambda text: changed(text, "name: query", "name: other"), {"query", "other"}),
            ("support", lambda text: changed(text, "How friendly?", "How kind?"), {"support"}),
            ("support", lambda text: changed(text, "neutral", "so-so"), {"support"}),
            ("presets", lambda text: changed(text, '{backend: fake, model: "two"}',
                '{backend: fake, model: "two", max_tokens: 49}'), {"query", "ask", "support"}),
        ],
    )  # fmt: skip
    def test_what_decides_a_result_is_in_every_id_of_its_suites(
        self, tmp_path: Path, name: str, change: Callable[[str], str], suites: set[str]
    ) -> None:
        texts = {"presets": PRESETS, **SUITES}
        plain = ids(plan_of(write_tiny(tmp_path / "plain")))
        other = ids(plan_of(write_tiny(tmp_path / "other", **{name: change(texts[name])})))
        differing = {key for key in plain.keys() | other.keys() if plain.get(key) != other.get(key)}
        preset = {"two"} if name == "presets" else {"one", "two"}
        assert differing == {
            key
            for key in plain.keys() | other.keys()
            if key[0] in suites and key[2].split()[0] in preset
        }

    @pytest.mark.parametrize(
        ("name", "old", "new", "cases"),
        [
            ("queries", "spare keys", "spare key", {"q4"}),
            ("queries", "collection: beta", "collection: alpha", {"q3"}),
            ("ask", "thirty five days", "35 days", {"a1"}),
            ("support", 'output: "Go away."', 'output: "Go."', {"c2"}),
            ("support", 'expected: "At the caretaker."', 'expected: "There."', {"c2"}),
        ],
    )
    def test_a_changed_case_changes_its_own_ids_alone(
        self, tmp_path: Path, name: str, old: str, new: str, cases: set[str]
    ) -> None:
        texts = {"queries": QUERIES, **SUITES}
        plain = ids(plan_of(write_tiny(tmp_path / "plain")))
        other = ids(
            plan_of(write_tiny(tmp_path / "other", **{name: changed(texts[name], old, new)}))
        )
        assert {key for key in plain if plain[key] != other[key]} == {
            key for key in plain if key[1] in cases
        }

    def test_the_corpus_is_in_the_ids_of_the_suites_that_search_it(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path)
        plain = ids(plan_of(path))
        with (tmp_path / "corpus" / "alpha" / "logs.md").open("a", encoding="utf-8") as stream:
            stream.write("One more sentence.\n")
        other = ids(plan_of(path))
        assert {key[0] for key in plain if plain[key] != other[key]} == {"query", "ask"}
        assert {key[0] for key in plain if plain[key] == other[key]} == {"support"}

    def test_the_embedder_is_in_the_ids_of_points_that_search_vectors(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path)
        job = load_job(path)

        def other_embedder(loaded: LoadedSuite, preset: Preset) -> dict[str, PoolSpec]:
            pools = pools_of(loaded, preset)
            if index := pools.get("index"):
                parts = {**index.parts, "vector": "another"}
                pools["index"] = index._replace(parts=parts)
            return pools

        plain, other = ids(Plan(job, pools_of)), ids(Plan(job, other_embedder))
        same = {key for key in plain if plain[key] == other[key]}
        assert same == {
            key for key in plain if key[0] == "support" or key[2].endswith("depth=fast")
        }


class TestGrowth:
    @pytest.mark.parametrize(
        "grown",
        [
            {"sweep": changed(SWEEP, DEPTHS, DEPTHS).replace("}}", ", search.limit: [10]}}", 1)},
            {"sweep": changed(SWEEP, "[one, two]", "[zero, one, two]"),
             "presets": PRESETS + "  zero: {embedder: {backend: fake}, depth: fast, generator: "
             "{backend: fake, model: zero}, judge: {backend: fake, model: zero},"
             " reranker: {backend: fake, model: zero}}\n"},
            {"sweep": changed(SWEEP, "suites:\n", "suites:\n  - {suite: first.yaml}\n"),
             "first": changed(SUPPORT, "name: support", "name: first")},
            {"queries": "- {id: q0, query: the first, judgments: []}\n" + QUERIES},
            {"sweep": changed(SWEEP, "[one, two]", "[two, one]")},
            {"query": changed(QUERY, "subsets", "trials: 3\nsubsets")},
        ],
        ids=["axis of one value", "preset", "suite", "case", "order of presets", "trials"],
    )  # fmt: skip
    def test_what_is_added_leaves_the_ids_of_what_was_there(
        self, tmp_path: Path, grown: dict[str, str]
    ) -> None:
        plain = ids(plan_of(write_tiny(tmp_path / "plain")))
        other = set(ids(plan_of(write_tiny(tmp_path / "grown", **grown))).values())
        assert set(plain.values()) <= other

    def test_an_added_point_leaves_the_ids_of_the_others(self, tmp_path: Path) -> None:
        few = changed(SWEEP, DEPTHS, "[hybrid, fast]")
        less = plan_of(write_tiny(tmp_path / "few", sweep=few))
        more = ids(plan_of(write_tiny(tmp_path / "more")))
        assert ids(less).items() <= more.items()
        assert less.digest != plan_of(write_tiny(tmp_path / "again")).digest

    def test_models_of_a_role_that_a_suite_does_not_use_make_points_of_their_own(
        self, tmp_path: Path
    ) -> None:
        axes = changed(SWEEP, DEPTHS, "[fast], generator.model: [one, two]")
        query = plan_of(write_tiny(tmp_path, sweep=axes)).suites[0]
        assert len({point.id for point in query.points}) == len(query.points) == 4

    def test_two_names_of_one_model_are_refused(self, tmp_path: Path) -> None:
        axes = changed(SWEEP, DEPTHS, "[thorough], generator.model: [two, two;raise=never]")
        with pytest.raises(ConfigError, match="their models are one file"):
            plan_of(write_tiny(tmp_path, sweep=axes))

    def test_a_subset_leaves_the_ids_of_its_cases(self, tmp_path: Path) -> None:
        sweep = changed(SWEEP, "{suite: query.yaml,", "{suite: query.yaml, subset: core,")
        part = ids(plan_of(write_tiny(tmp_path / "part", sweep=sweep)))
        whole = ids(plan_of(write_tiny(tmp_path / "whole")))
        assert part.items() < whole.items()
        assert {key[1] for key in part if key[0] == "query"} == {"q1", "q3"}


class TestTrials:
    def test_trials_have_their_own_ids_and_seeds(self, tiny_job: LoadedJob) -> None:
        plan = Plan(tiny_job, pools_of, trials=3)
        units = list(plan.units())
        assert plan.n_units == len(units) == 3 * 48
        assert len({unit.id for unit in units}) == 3 * 48
        # The first four bytes of sha256 of the id's text.
        for unit in units:
            first = hashlib.sha256(unit.id.encode()).digest()[:4]
            assert unit.seed() == int.from_bytes(first, "big")
        for case in ("q1", "a1", "c1"):
            assert len({unit.seed() for unit in units if unit.case.id == case}) > 3

    def test_the_first_trial_is_the_only_trial_of_a_plan_with_one(
        self, tiny_job: LoadedJob
    ) -> None:
        assert ids(Plan(tiny_job, pools_of)).items() <= ids(Plan(tiny_job, pools_of, 2)).items()

    def test_a_suites_own_number_counts_unless_one_is_given(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path, ask=ASK + "trials: 4\n")
        # 40 + 2 cases x 2 presets x 4 trials + 4.
        assert plan_of(path).n_units == 60
        assert plan_of(path, 1).n_units == 48

    def test_trials_that_draw_nothing_are_pointed_out(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path / "same", ask=ASK + "trials: 4\n")
        (lint,) = lints(plan_of(path))
        assert lint.startswith("suite 'ask' has 4 trials and no point draws")
        drawing = changed(PRESETS, 'model: "two"', 'model: "two", temperature: 0.5')
        path = write_tiny(tmp_path / "drawing", ask=ASK + "trials: 4\n", presets=drawing)
        assert lints(plan_of(path)) == []


class TestOrder:
    def test_units_stand_by_suite_case_point_and_trial(self, tiny_job: LoadedJob) -> None:
        plan = Plan(tiny_job, pools_of, trials=2)
        expected = [
            (suite, case, point, trial)
            for suite, cases, depths in (
                ("query", ("q1", "q2", "q3", "q4"), DEPTHS.strip("[]").split(", ")),
                ("ask", ("a1", "a2"), [""]),
                ("support", ("c1", "c2"), [""]),
            )
            for case in cases
            for point in (
                f"{preset} depth={depth}" if depth else preset
                for preset in ("one", "two")
                for depth in depths
            )
            for trial in (0, 1)
        ]
        units = list(plan.units())
        assert [name_of(unit) for unit in units] == expected
        assert [unit.number for unit in units] == list(range(plan.n_units))
        # 4 x 10 x 2 = 80, then 2 x 2 x 2 = 8 and 8.
        assert [(suite.first_index, suite.n_units) for suite in plan.suites] == [
            (0, 80),
            (80, 8),
            (88, 8),
        ]

    def test_two_axes_vary_the_last_one_first(self, tmp_path: Path) -> None:
        sweep = changed(SWEEP, DEPTHS, "[fast, hybrid], search.limit: [5, 9]")
        labels = [p.label for p in plan_of(write_tiny(tmp_path, sweep=sweep)).suites[0].points]
        assert labels[:4] == [
            "one depth=fast limit=5",
            "one depth=fast limit=9",
            "one depth=hybrid limit=5",
            "one depth=hybrid limit=9",
        ]


def groups_of(plan: Plan) -> list[tuple[set[str], set[str]]]:
    """Pools by label, and points by suite and label."""
    label = {
        (suite.loaded.name, point.id): f"{suite.loaded.name}: {point.label}"
        for suite in plan.suites
        for point in suite.points
    }
    return [
        ({plan.pools[key].label for key in group.pools}, {label[name] for name in group.points})
        for group in plan.groups
    ]


class TestGroups:
    def test_smaller_sets_of_pools_join_the_larger(self, tiny_job: LoadedJob) -> None:
        # Preset two needs the index and both models at `thorough`; all others need fewer.
        ((pools, points),) = groups_of(Plan(tiny_job, pools_of))
        assert pools == {"index corpus", "fake one", "fake two"}
        assert len(points) == 10 + 2 + 2

    def test_models_that_never_meet_are_in_groups_of_their_own(self, tmp_path: Path) -> None:
        presets = "version: 1\npresets:\n"
        for name in ("a", "b"):
            role = f"{{backend: fake, model: {name}}}"
            presets += (
                f"  {name}: {{embedder: {{backend: fake}}, reranker: {role}, judge: {role}}}\n"
            )
        sweep = """
version: 1
name: two
presets_file: presets.yaml
presets: [a, b]
suites:
  - {suite: query.yaml, axes: {depth: [fast, balanced]}}
  - {suite: support.yaml}
"""
        plan = plan_of(write_tiny(tmp_path, presets=presets, sweep=sweep))
        assert groups_of(plan) == [
            (
                {"index corpus", "fake a"},
                # The lexical points need the index alone: they join the first group that has it.
                {"query: a depth=fast", "query: a depth=balanced", "query: b depth=fast",
                 "support: a"},
            ),
            ({"index corpus", "fake b"}, {"query: b depth=balanced", "support: b"}),
        ]  # fmt: skip

    def test_a_group_gives_each_case_with_all_its_points_and_trials(
        self, tiny_job: LoadedJob
    ) -> None:
        plan = Plan(tiny_job, pools_of, trials=2)
        (group,) = plan.groups
        sizes = [len(units) for units in plan.case_units(group)]
        # Queries at 10 points, questions and rubric cases at 2, each twice.
        assert sizes == [20] * 4 + [4] * 2 + [4] * 2
        for units in plan.case_units(group):
            assert len({(unit.suite.loaded.name, unit.case.id) for unit in units}) == 1

    @given(
        pools=st.lists(st.sets(st.sampled_from("vwxyz"), min_size=1), min_size=14, max_size=14),
        trials=st.integers(1, 2),
    )
    @settings(
        deadline=None,
        derandomize=True,
        max_examples=60,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def test_every_unit_is_in_exactly_one_group(
        self, tiny_job: LoadedJob, pools: list[set[str]], trials: int
    ) -> None:
        remaining = iter(pools)

        def some_pools(loaded: LoadedSuite, preset: Preset) -> dict[str, PoolSpec]:
            return {
                name: PoolSpec("fake", name, {"name": name}, {}) for name in sorted(next(remaining))
            }

        plan = Plan(tiny_job, some_pools, trials)
        points = [name for group in plan.groups for name in group.points]
        assert len(points) == len(set(points)) == 14
        for group in plan.groups:
            assert not any(group.pools < other.pools for other in plan.groups)
            for suite in plan.suites:
                for point in suite.points:
                    if (suite.loaded.name, point.id) in group.points:
                        assert point.pool_keys <= group.pools
        given_out = Counter(
            unit.number
            for group in plan.groups
            for units in plan.case_units(group)
            for unit in units
        )
        assert given_out == Counter(range(plan.n_units))
        by_number = {unit.number: unit.id for unit in plan.units()}
        for group in plan.groups:
            for units in plan.case_units(group):
                assert all(by_number[unit.number] == unit.id for unit in units)

    def test_points_with_fewer_cases_are_covered_once(self, tmp_path: Path) -> None:
        sweep = changed(SWEEP, "{suite: query.yaml,", "{suite: query.yaml, model_subset: core,")
        plan = plan_of(write_tiny(tmp_path, sweep=sweep))
        # 2 presets x (3 depths x 4 queries + 2 depths x 2 queries) + 4 + 4.
        assert plan.n_units == 40
        (group,) = plan.groups
        numbers = [unit.number for units in plan.case_units(group) for unit in units]
        assert numbers == list(range(40))

    def test_a_shared_pool_is_opened_for_every_method_that_any_point_calls(
        self, tmp_path: Path
    ) -> None:
        sweep = changed(SWEEP, DEPTHS, "[vector]")
        sweep = "\n".join(line for line in sweep.split("\n") if "ask" not in line)
        plan = plan_of(write_tiny(tmp_path / "vector", sweep=sweep))
        assert methods(plan) == ["vector"]
        sweep = sweep.replace("[vector]", "[vector, fast]")
        assert methods(plan_of(write_tiny(tmp_path / "both", sweep=sweep))) == ["lexical", "vector"]


def methods(plan: Plan) -> Any:
    (index,) = [spec for spec in plan.pools.values() if spec.kind == "index"]
    return index.location["methods"]
