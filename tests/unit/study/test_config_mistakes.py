"""config: one mistake is one error: what was expected, what was found, what is near."""

import copy
import datetime
import json
import math

import pytest

from dlbench.analysis import published_numbers
from dlbench.imports import import_fields
from dlbench.study import config_schema
from dlbench.study.config_schema import ConfigError
from dlbench.study.runs import CONDITION, FIELDS
from dlbench.tables import parquet_files, table_columns
from support.studies.made_studies import BLOCK, STUDY, refused, study

RUN = BLOCK | {"steps": 5}
LEARNS = BLOCK | {"dataset": "digits", "epochs": 1}
DATA, SITE = STUDY["data"], STUDY["site"]
HUGE = 99999999999999999999999


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": math.nan}, ".learning_rate: expected a finite number, found nan"),
        ({"learning_rate": [0.1, math.inf]}, ".learning_rate[1]: expected a finite number, found"),
        ({"learning_rate": "1e-3"}, 'found "1e-3"; YAML reads 1e-3 as text: write 1.0e-3'),
        ({"steps": math.inf}, ".steps: expected a finite number, found inf"),
        ({"steps": HUGE}, f"at most 1000000000, found {HUGE}; no machine or run has so much"),
        ({"steps": 10.5}, ".steps: expected a whole number or a list, found 10.5"),
        ({"steps": "10"}, 'found "10"; in quotes it is text'),
        ({"power_limit_w": 0}, ".power_limit_w: expected at least 1, found 0"),
        ({"power_limit_w": [250, -1]}, ".power_limit_w[1]: expected at least 1, found -1"),
        ({"power_limit_w": "250 W"}, '.power_limit_w: expected a whole number or a list, found "2'),
        ({"power_limit_w": 250.5}, ".power_limit_w: expected a whole number or a list, found 250."),
        ({"seed": 2**33}, ".seed: expected at most 4000000000"),
        ({"model": "LeNet5"}, "letters, digits and _, found \"LeNet5\" (did you mean 'lenet5'"),
        ({"dataset": "CIFAR-10"}, "found \"CIFAR-10\" (did you mean 'cifar10'?)"),
        ({"runtime": ["bare", "Docker"]}, "runtime[1]: expected a name of small letters"),
        ({"environment": "my env"}, "a name of letters, digits, _, . and -, found"),
        ({"precision": 16}, ".precision: expected one of float32, tf32, bfloat16, float16, f"),
        ({"evaluate": True}, ".evaluate: expected one of auto, yes, no, found true"),
        ({"xla": "yes"}, 'found "yes"; in quotes it is text'),
        ({"exclude": [{"model": "lenet"}]}, "exclude[0].model: no combination of this block has l"),
        ({"exclude": [{"model": "lenet"}]}, "(did you mean 'lenet5'?); there are: lenet5"),
        (
            {"precision": ["float32", "float16"], "xla": [True, False], "exclude": [
                {"precision": "float32", "xla": True}, {"precision": "bfloat16"}]},
            "exclude[1].precision: no combination of this block has bfloat16",
        ),
        ({"exclude": [{"reason": "why not"}]}, "exclude[0]: expected fields of a run beside the"),
        ({"include": [{"model": "cnn"}]}, "(block).include[0].model: no file models/cnn.py"),
        ({"include": [{"epochs": 2}]}, "(block).include[0]: dataset synthetic has no epochs"),
        ({"include": [{"environment": "trian"}]}, "(block).include[0].environment: no folder"),
        (
            {"include": [{"strategy": "horovod", "strategy_options": {"x": 1}}]},
            "(block).include[0].strategy_options: strategy horovod has no option 'x'",
        ),
        (
            {"batch_per_device": [8, 16], "include": [{"model": "cnn12"}]},
            "(block).include[0]: expected either batch_per_device or global_batch, found neither",
        ),
        ({"nam": "x", "name": None}, "unknown key 'nam' (did you mean 'name'?)"),
        ({"strategy": None}, ".strategy: expected a text or a list, found null"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_block_is_one_error(change, message):
    block = {key: value for key, value in (RUN | change).items() if (key, value) != ("name", None)}
    found = refused(block)
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_limit_s": math.nan}, "time_limit_s: expected a finite number, found nan"),
        ({"time_limit_s": "1e4"}, 'found "1e4"; YAML reads 1e4 as text: write 1.0e+4'),
        ({"time_limit_s": 10**10}, "time_limit_s: expected at most 1000000000"),
        ({"sentinels": "all"}, "sentinels: expected auto, none, or a whole number from 1 to 1000, "
         "or a list of mappings, one a condition, found \"all\""),
        ({"sentinels": []}, "sentinels: expected a list that is not empty, found []"),
        ({"sentinels": [{"strtegy": "x"}]},
         "sentinels[0]: unknown key 'strtegy' (did you mean 'strategy'?)"),
        ({"equivalence_margin": 1}, "equivalence_margin: expected less than 0.5, found 1"),
        ({"repeats": HUGE}, "repeats: expected a whole number from 1 to 10000, or"),
        ({"repeats": {"target_interval": 0.1, "min": 3}}, "repeats: missing key: max"),
        ({"repeats": {"target_interval": 0.1, "min": 3, "mx": 4}}, "unknown key 'mx' (did you"),
        (
            {"study": "mine/first"},
            'study: expected a name that is not empty and has no /, found "mine/first"',
        ),
        ({"study": ""}, 'study: expected a name that is not empty and has no /, found ""'),
        ({"study": datetime.date(2026, 1, 1)}, "; YAML reads it as a date: put it in quotes"),
        ({"study": True}, "; YAML reads yes, no, on and off as true and false: put it in quotes"),
        ({"images": {"train": {"sorce": "x"}}}, "images.train: unknown key 'sorce' (did you mean"),
        ({"images": {"source": "docker://x"}}, "; an image has a name, as in images: {train: {sou"),
        ({"images": {1: {}}}, "images: expected a text as key, found 1: put it in quotes"),
        ({"images": {"train": {"digest": "sha256:12"}}}, "expected sha256: and 64 hexadecimal"),
        (
            {"images": {"trian": {}}, "matrix": [RUN | {"runtime": "apptainer"}]},
            "images: no run takes 'trian' (did you mean 'train'?); they take: train",
        ),
        ({"compare": [{"field": "batch_per_device", "base": "8"}]}, "found '8'; in quotes it is t"),
        ({"compare": [{"field": "steps", "base": 7}]}, "base: no run has the steps 7; there are"),
        (
            {"references": [{"path": "config.yaml", "match": ["modell"]}]},
            "references[0].match[0]: expected one of site,",
        ),
        ({"references": [{"path": "studies"}]}, "references[0].path: there is no file studies"),
        (
            {"imports": [{"name": "a", "path": "studies", "fields": {"modell": "x"}}]},
            "(did you mean 'model'?), found \"modell\"",
        ),
        (
            {"trainers": {"mine": {"command": ["x"], "log": "tf_cnn"}}},
            "trainers.mine.log: no file importers/tf_cnn.py",
        ),
        ({"trainers": {"My": {"command": ["x"], "log": "auto"}}}, "trainers: expected a name of"),
        (
            {"site": SITE | {"device_peak_tflops": {"float32": 0}}},
            "site.device_peak_tflops.float32: expected more than 0, found 0",
        ),
        (
            {"site": SITE | {"device_peak_tflops": {"fp32": 1}}},
            "site.device_peak_tflops: unknown key 'fp32'",
        ),
        ({"site": SITE | {"devices_per_node": "4"}}, "auto, or a whole number from 1 to 10000"),
        ({"site": SITE | {"job": SITE["job"] | {"gpu_request": "a100"}}}, "as in gpu:a100, found"),
        ({"figures": ["Scaling"]}, "(did you mean 'scaling'?)"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_study_is_one_error(change, message):
    found = refused(**change)
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            {"top1": 95},
            "must_reach.top1: expected at most 1, found 95; it is a share: 0.95 is 95 %",
        ),
        ({"top1": -0.1}, "must_reach.top1: expected at least 0"),
        ({"final_loss": math.nan}, "must_reach.final_loss: expected a finite number"),
        ({"top1": "95%"}, "must_reach.top1: expected a number, found"),
    ],
)
def test_a_score_that_cannot_be_reached_is_refused(gate, message):
    found = refused(LEARNS | {"must_reach": gate})
    assert message in found
    assert "\n" not in found


def test_a_list_that_contains_itself_is_refused():
    matrix = [RUN]
    matrix.append(matrix)
    assert refused(matrix=matrix) == "a list or mapping contains itself (by & and *)"


def test_a_long_value_is_not_repeated_whole():
    assert len(refused(figures="x" * 10_000)) < 400


def test_a_whole_number_may_be_written_with_a_point():
    written = {"repeats": 2.0, "seed": 1.0, "time_limit_s": 60.0}
    block = RUN | {"steps": 10.0, "batch_per_device": [32.0, 64], "seed": 3.0}
    plain = RUN | {"steps": 10, "batch_per_device": [32, 64], "seed": 3}
    with_points = study(block, **written)
    assert [run.id for run in with_points.runs] == [run.id for run in study(plain, repeats=2).runs]
    assert all(".0" not in " ".join(run.flags()) for run in with_points.runs)
    assert study(RUN | {"learning_rate": 1.0}).runs == study(RUN | {"learning_rate": 1}).runs


def numbers(part, where=""):
    """(place, part) of everything in the schema that takes a number."""
    if isinstance(part, dict):
        kinds = part.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        bounded = {"integer", "number"} & set(kinds) and "string" not in kinds
        if bounded and not where.endswith(("perplexity", "final_loss")):
            yield where, part
        for key, below in part.items():
            yield from numbers(below, f"{where}.{key}")
    elif isinstance(part, list):
        for below in part:
            yield from numbers(below, where)


def test_every_number_of_a_config_has_a_least_and_a_most():
    found = list(numbers(config_schema.schema()))
    assert len(found) > 40
    for where, part in found:
        assert {"minimum", "exclusiveMinimum"} & part.keys(), where
        assert {"maximum", "exclusiveMaximum"} & part.keys(), where


def test_the_largest_run_fits_into_the_table():
    axes = config_schema.schema()["$defs"]["axes"]["properties"]
    most = {n: axes[n]["maximum"] for n in FIELDS if "maximum" in axes.get(n, {}) and n != "epochs"}
    (run,) = study(RUN | most).runs
    row = dict.fromkeys(table_columns.RUNS.names) | {n: getattr(run, n) for n in CONDITION}
    row |= {"devices": run.devices, "global_batch": run.global_batch, "run_id": run.id}
    assert parquet_files.table([row], table_columns.RUNS).num_rows == 1


def test_every_pattern_of_the_schema_has_words():
    text = json.dumps(config_schema.schema())
    patterns = {part for part in config_schema.PATTERNS if json.dumps(part) in text}
    assert patterns == set(config_schema.PATTERNS)
    assert text.count('"pattern": "') == sum(
        text.count(f'"pattern": {json.dumps(part)}') for part in patterns
    )


def test_the_names_of_columns_in_the_schema_are_those_there_are():
    properties = config_schema.schema()["properties"]
    match = properties["references"]["items"]["properties"]["match"]["items"]["enum"]
    assert match == list(published_numbers.SETTINGS)
    fields = properties["imports"]["items"]["properties"]["fields"]["propertyNames"]["enum"]
    assert fields == import_fields.NAMES


def places(value, path=()):
    """The paths of all values in plain values."""
    yield path
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(below, (*path, key))


EXAMPLE = STUDY | {
    "matrix": [LEARNS | {"must_reach": {"top1": 0.5}, "exclude": [{"batch_per_device": 8}],
                         "include": [{"batch_per_device": 16}]}],
    "compare": [{"field": "batch_per_device", "base": 16}],
    "images": {"train": {"source": "docker://x", "binds": ["/a"]}},
    "trainers": {"mine": {"command": ["x"], "log": "auto"}},
}  # fmt: skip
WRONG = [None, "", "?", "1e-3", -1, 0, 1.5, HUGE, math.nan, math.inf, True, [], [[]], {}, {"?": {}}]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_one_wrong_value_is_at_most_one_error_and_never_a_crash(wrong):
    for path in filter(None, places(EXAMPLE)):
        config = copy.deepcopy(EXAMPLE)
        place = config
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = wrong
        try:
            study(**config)
        except ConfigError as error:
            output = [line for line in str(error).splitlines() if "missing key" not in line]
            assert len(output) <= 1, (path, str(error))
