"""Configs that would unfold to more than a machine holds, or be tried out for hours: refused."""

import itertools
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.plan import planning
from dlbench.study import config, config_schema, matrix, yaml_files
from dlbench.study.config_schema import ConfigError
from support.studies.made_studies import BLOCK, STUDY, refused, study

RUN = BLOCK | {"steps": 5}
NINE = string.ascii_lowercase[:9]


@pytest.mark.parametrize(
    "part",
    [
        lambda below: f"[{', '.join([below] * 9)}]",
        lambda below: f"{{{', '.join(f'{key}: {below}' for key in NINE)}}}",
        lambda below: f"{{<<: [{', '.join([below] * 9)}]}}",
    ],
    ids=["lists", "mappings", "merged"],
)
def test_aliases_of_aliases_are_refused_before_they_are_unfolded(tmp_path, part):
    lines = [f"x0: &x0 {{{', '.join(f'{key}: 1' for key in NINE)}}}"]
    lines += [f"x{level}: &x{level} {part(f'*x{level - 1}')}" for level in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, "study: *x8", ""]))
    with pytest.raises(ConfigError, match=r"bomb.yaml, line 6: .* unfolds to \d{6,7} values .by &"):
        config.read(tmp_path / "bomb.yaml")


def test_aliases_within_one_key_are_refused_with_its_name(tmp_path):
    value = "[a, a]"
    for level in range(8):
        value = f"[&x{level} {value}{f', *x{level}' * 8}]"
    (tmp_path / "bomb.yaml").write_text(f"seed: 1\nmatrix: {value}\n")
    with pytest.raises(Error, match=r"line 2: matrix unfolds to \d{9} values .* at most 300000"):
        yaml_files.read(tmp_path / "bomb.yaml")


def test_aliases_that_a_person_uses_are_read_and_so_is_a_list_that_contains_itself(tmp_path):
    (tmp_path / "a.yaml").write_text("base: &b {x: [1, 2]}\nmore:\n- {<<: *b, y: 3}\n- *b\n")
    assert yaml_files.read(tmp_path / "a.yaml")["more"] == [{"x": [1, 2], "y": 3}, {"x": [1, 2]}]
    (tmp_path / "b.yaml").write_text("study: &s [*s]\n")
    with pytest.raises(ConfigError, match="contains itself"):
        config_schema.check(yaml_files.read(tmp_path / "b.yaml"))


def test_what_snakemake_or_another_workflow_has_read_is_refused_before_it_is_looked_through():
    value = ["a"]
    for _ in range(9):
        value = [value] * 9
    for act in (config_schema.check, lambda s: planning.plan_of_start(s, planning.no_sentinels)):
        with pytest.raises(ConfigError, match=r"^matrix: it unfolds to \d{9} values"):
            act(STUDY | {"matrix": value})


AXES = {"batch_per_device": [*range(1, 500)], "steps": [*range(1, 500)], "seed": [*range(499)]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (AXES, "499 values of batch_per_device x 499 values of steps x 499 values of seed are "
         "124251499 combinations; expected at most 100000"),
        ({"node": "n[1-999999999]"}, ".node: n[1-999999999] names 999999999 nodes; expected at"),
        ({"node": ["n[1-400]", "m[1-400]"], "seed": [*range(200)]}, "are 160000 combinations"),
        ({"include": [{"seed": [*range(400)], "steps": [*range(1, 401)]}]},
         ".include[0]: 400 values of seed x 400 values of steps are 160000 combinations"),
    ],
)  # fmt: skip
def test_products_and_ranges_are_refused_with_their_number_and_key(change, message):
    assert message in refused(RUN | change)


def test_repeats_count_and_so_do_the_blocks_before(monkeypatch):
    monkeypatch.setattr(config_schema, "MAX_RUNS", 100)
    other = RUN | {"name": "other", "seed": [*range(2, 12)]}
    assert len(study(RUN, other, repeats=9).runs) == 99
    with pytest.raises(ConfigError, match=r"repeats: 10 of 10 .* before, 110 runs; .* most 100"):
        study(RUN, other, repeats=10)


def test_ten_thousand_excludes_on_ten_thousand_combinations_are_looked_up():
    axes = {"seed": [*range(100)], "steps": [*range(1, 101)]}
    rules = [{"seed": a, "steps": b} for a, b in itertools.product(*axes.values())][1:]
    kept, excluded = matrix.expand({"name": "x", **axes, "exclude": rules}, "here")
    assert [values for _, values in kept] == [{"seed": 0, "steps": 1}]
    assert len(excluded) == 9999


FIELD = st.sampled_from(["model", "seed", "steps", "strategy_options"])
VALUE = st.sampled_from([1, 2, 3, {"a": 1}, {"a": 2}])
ENTRY = st.dictionaries(FIELD, st.one_of(VALUE, st.lists(VALUE, max_size=3)), max_size=3)


@given(st.lists(ENTRY, max_size=5), st.dictionaries(FIELD, VALUE))
def test_what_is_looked_up_is_what_trying_one_by_one_finds(entries, run):
    matched = matrix.lookup(entries)(run.get)
    for place, entry in enumerate(entries):
        matches = all(run.get(key) in matrix.as_list(value) for key, value in entry.items())
        assert bool(matched >> place & 1) == (matches and bool(entry))


def test_many_mistakes_are_not_all_said_and_many_keys_not_compared_in_pairs(tmp_path):
    keys = {f"key{number}": 1 for number in range(50_000)}
    (tmp_path / "many.json").write_text(json.dumps(keys))
    with pytest.raises(ConfigError) as error:
        config_schema.check(STUDY | config.read(tmp_path / "many.json"))
    assert len(str(error.value).splitlines()) == config_schema.MAX_MISTAKES
