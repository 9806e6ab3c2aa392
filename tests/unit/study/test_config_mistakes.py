"""config: one mistake is one error: what was expected, what was found, what is near."""

import copy
import datetime
import math

import jsonschema
import pytest

from dlbench.analysis import published_numbers
from dlbench.common.run_fields import DECLARED
from dlbench.study import config_schema
from dlbench.study.config_schema import ConfigError
from dlbench.study.runs import CONDITION, FIELDS
from dlbench.tables import parquet_files, table_columns
from support.studies.made_studies import BLOCK, STUDY, refused, study

RUN = BLOCK | {"steps": 5}
GONE = object()  # of a key that a block lacks
HUGE = 99999999999999999999999
PAIR = {"precision": ["float32", "float16"]}
TWO = {"nodes": 2, "strategy": "horovod", "launcher": "srun"}


def horovod(*options, **more):
    return {"strategy": "horovod", "strategy_options": options[0] if options else more}


def learns(gate, **more):
    return {"dataset": "digits", "epochs": 1, "steps": GONE, "must_reach": gate} | more


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": math.nan}, ".learning_rate: expected a finite number, found nan"),
        ({"learning_rate": "1e-3"}, 'found "1e-3"; YAML reads 1e-3 as text: write 1.0e-3'),
        ({"steps": HUGE}, f"at most 1000000000, found {HUGE}; no machine or run has so much"),
        ({"steps": 10.5}, ".steps: expected a whole number or a list, found 10.5"),
        ({"steps": "10"}, 'found "10"; in quotes it is text'),
        ({"xla": "yes"}, 'found "yes"; in quotes it is text'),
        ({"batch_per_device": 0}, "batch_per_device: expected at least 1, found 0"),
        ({"batch_per_device": "8"}, 'a whole number, or max, found "8"; in quotes it is text'),
        ({"batch_per_device": True}, "expected a whole number or max or a list, found true"),
        ({"batch_per_device": []}, "a list that is not empty"),
        ({"batch_per_device": [8, 8]}, "a list without repetitions"),
        ({"batch_per_device": GONE}, "either batch_per_device or global_batch, found neither"),
        ({"global_batch": 8}, "expected either batch_per_device or global_batch, found both"),
        ({"precision": ["float32", "float31"]}, "precision[1]: expected one of float32, tf32, bf"),
        ({"precision": "float31"}, "did you mean 'float32'?"),
        ({"evaluate": True}, ".evaluate: expected one of auto, yes, no, found true"),
        ({"evaluate": "yes"}, "dataset synthetic has no held-out items to evaluate"),
        (
            {"evaluate": "yes", "dataset": "digits", "mode": "forward"},
            "forward learns nothing that",
        ),
        ({"batch": 8}, "unknown key 'batch' (did you mean 'batch_per_device'?)"),
        ({"precision": "bf16"}, "did you mean 'bfloat16'?"),
        ({"framework": "torch"}, "(trainers) (did you mean 'pytorch'?)"),
        ({"model": "lenet6"}, "(block).model: no file models/lenet6.py (did you mean 'lenet5'?); "),
        ({"model": "LeNet5"}, "letters, digits and _, found \"LeNet5\" (did you mean 'lenet5'"),
        ({"dataset": "ptb"}, "needs data of the kind image; ptb is of the kind text"),
        ({"strategy": "miror"}, "did you mean 'mirrored'?"),
        ({"strategy": None}, ".strategy: expected a text or a list, found null"),
        ({"environment": "trian"}, "no folder envs/trian (did you mean 'train'?)"),
        ({"epochs": 2}, "expected either steps or epochs, found both"),
        ({"steps": GONE}, "expected either steps or epochs, found neither"),
        ({"nam": "x", "name": GONE}, "unknown key 'nam' (did you mean 'name'?)"),
        ({"exclude": [{"model": "lenet"}]}, "exclude[0].model: no combination of this block has l"),
        ({"exclude": [{"model": "lenet"}]}, "(did you mean 'lenet5'?); there are: lenet5"),
        (
            PAIR | {"exclude": [{"precision": "float32"}, {"precision": "bfloat16"}]},
            "exclude[1].precision: no combination of this block has bfloat16",
        ),
        ({"exclude": [{"model": "lenet5"}]}, "the matrix is empty: all 1 combinations"),
        ({"exclude": [{"reason": "why not"}]}, "exclude[0]: expected fields of a run beside the"),
        ({"exclude": [{"modl": "x"}]}, ".exclude[0]: unknown key 'modl' (did you mean 'model'?)"),
        ({"include": [{"model": "cnn"}]}, "(block).include[0].model: no file models/cnn.py"),
        ({"include": [{"epochs": 2}]}, "(block).include[0]: dataset synthetic has no epochs"),
        ({"include": [{"modl": "x"}]}, ".include[0]: unknown key 'modl' (did you mean 'model'?)"),
        # Nodes.
        ({"node": "n[1-3"}, "node: expected a list of nodes as in n[1-3,5], found 'n[1-3'"),
        ({"node": ["n[1-3]", "n2"]}, "node: expected each node once, found twice: n2"),
        (TWO | {"node": "n1"}, "n1 is one node, and the run has 2"),
        (TWO | {"node": "n[1-3]"}, "n[1-3] is 3 nodes, and the run has 2: name as many as nodes"),
        ({"node": "n1; reboot"}, "node: expected"),
        ({"node": "--help"}, "node: expected"),
        # Options of strategies.
        (horovod(cycle_time=1), "no option 'cycle_time' (did you mean 'cycle_time_ms'?)"),
        (horovod(cycle_time=1), "(block).strategy_options: strategy horovod has no option"),
        (horovod(compression="fp8"), "compression: expected one of none, fp16, found 'fp8'"),
        (horovod(gradient_groups=-1), "expected a whole number of at least 0, found -1"),
        (horovod([{"timeline": True}, {"timeline": "yes"}]), "expected true or false, found 'yes'"),
        (
            horovod(timeline=True) | {"strategy": ["horovod", "mirrored"]},
            "strategy mirrored has no option 'timeline'; there are: none",
        ),
        (horovod([{"timeline": False}, {"cycle_time_ms": 5}]), "already in matrix[0] (block)"),
        # Learning gates.
        (learns({"top1": 95}), "at most 1, found 95; it is a share: 0.95 is 95 %"),
        (learns({"top1": "0.9"}), 'must_reach.top1: expected a number, found "0.9"'),
        (learns({"top2": 0.5}), "must_reach: unknown key 'top2' (did you mean 'top"),
        (learns({}), "must_reach: expected at least one key"),
        (learns({"iou": 0.5}), "must_reach: lenet5 has no iou; it has: top1, top5"),
        (learns({"top1": 1}, mode="forward"), "mode forward takes steps, not epochs"),
        ({"mode": "input", "must_reach": {"final_loss": 1}}, "mode input has no model, so it"),
        ({"must_reach": {"top1": 0.9}}, 'top1 needs an evaluation; give epochs, or evaluate: "yes'),
        ({"mode": "forward", "must_reach": {"top1": 1}}, "must_reach: top1 needs an evaluation"),
    ],
)
def test_a_mistake_in_a_block_is_one_error(change, message):
    block = {key: value for key, value in (RUN | change).items() if value is not GONE}
    found = refused(block)
    assert message in found
    assert "\n" not in found


def compared(field, base, **more):
    return {"matrix": [RUN | {"copies_per_node": [1, 2], **more}],
            "compare": [{"field": field, "base": base}]}  # fmt: skip


def photos(**images):
    return {"data": STUDY["data"] | {"images": {"photos": images}}}


def with_data(**changes):
    return {"data": STUDY["data"] | changes}


def site(**changes):
    return {"site": STUDY["site"] | changes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matrix": []}, "matrix: expected a list that is not empty"),
        ({"matrix": None}, "matrix: expected a list, found null"),
        ({"matrx": []}, "unknown key 'matrx' (did you mean 'matrix'?)"),
        ({"history": [[]]}, "history[0]: expected a text, or a mapping with path, found []"),
        ({"repeats": 0}, "a whole number from 1 to 10000, or a mapping with target"),
        ({"repeats": {"target_interval": 0.1, "min": 3}}, "repeats: missing key: max"),
        ({"repeats": {"target_interval": 0.1, "min": 3, "mx": 4}}, "unknown key 'mx' (did you"),
        ({"figures": ["scalling"]}, "figures: no file figures/scalling.py (did you mean 'scaling'"),
        ({"time_limit_s": 0}, "time_limit_s: expected more than 0"),
        ({"equivalence_margin": 1}, "equivalence_margin: expected less than 0.5, found 1"),
        ({"sentinels": "all"}, "sentinels: expected auto, none, or a whole number from 1 to 1000, "
         "or a list of mappings, one a condition, found \"all\""),
        ({"sentinels": []}, "sentinels: expected a list that is not empty, found []"),
        ({"sentinels": [{"strtegy": "x"}]}, "sentinels[0]: unknown key 'strtegy' (did you mean"),
        ({"study": "mine/first"}, "study: expected a name that is not empty and has no /, found"),
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
        ({"references": [{"path": "x", "match": ["modell"]}]}, "[0].match[0]: expected one of sit"),
        ({"references": [{"path": "studies"}]}, "references[0].path: there is no file studies"),
        (
            {"imports": [{"name": "a", "path": "studies", "fields": {"modell": "x"}}]},
            "(did you mean 'model'?), found \"modell\"",
        ),
        ({"trainers": {"My": {"command": ["x"], "log": "auto"}}}, "trainers: expected a name of"),
        # What is compared.
        (compared("runtim", "bare"), "compare[0].field: a run has no field 'runtim' (did you mean"),
        (compared("repeat", 1), "a run has no field 'repeat'"),
        (compared("runtime", "bar"), "compare[0].base: no run has the runtime 'bar' (did you mean"),
        (compared("copies_per_node", 3), "no run has the copies_per_node 3; there are: 1, 2"),
        (compared("copies_per_node", True), "a whole number, as every copies_per_node is, found T"),
        (compared("batch_per_device", "8"), "found '8'; in quotes it is text"),
        (compared("xla", 0), "base: expected true or false, as every xla is, found 0"),
        ({"compare": [{"field": "runtime"}]}, "compare[0]: missing key: base"),
        (compared("runtime", None), "compare[0].base: expected a text or a number"),
        (compared("strategy", "horovod", **horovod([{"cycle_time_ms": 2}, {"cycle_time_ms": 3}])),
         "compare[0].base: strategy horovod is no single condition, since its runs have the "
         "strategy_options 'cycle_time_ms=2.0', 'cycle_time_ms=3.0'; compare strategy_options "),
        ({"compare": 2 * [{"field": "runtime", "base": "bare"}]}, "compare: expected a list with"),
        # The site, and data.
        (site(devices_per_node=0), "auto, or a whole number from 1 to 10000"),
        (site(device="cpi"), "auto, cpu, gpu (did you mean 'cpu'?)"),
        (site(device_peak_tflops={"fp32": 1}), "device_peak_tflops: unknown key 'fp32'"),
        (site(job=STUDY["site"]["job"] | {"gpu_request": "a100"}), "as in gpu:a100, found"),
        ({"site": {"name": "here"}}, "site: missing keys: device, devices_per_node"),
        (with_data(terms_accepted=["imagnet"]), "did you mean 'imagenet'?"),
        (with_data(tfrecords={"imagnet": "/x"}), "data.tfrecords: no file datasets/imagnet.py"),
        (photos(paht="/data"), "data.images.photos: unknown key 'paht' (did you mean 'path'?)"),
        (photos(path="/data", max_unreadable=5), "photos.max_unreadable: expected less than 1"),
        (photos(path="/data", image_size=[224]), "image_size: expected a list of at least 2"),
        (photos(path="/data", image_size=[8, 8, 3]), "expected a list of at most 2"),
        (photos(path="/data", validation_share=0), "expected more than 0, found 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_study_is_one_error(change, message):
    found = refused(**change)
    assert message in found
    assert "\n" not in found


def test_all_mistakes_are_named_at_once():
    lines = refused(BLOCK | {"batch": 1}, repeats=0).splitlines()
    assert [line.split(":")[0] for line in lines] == ["matrix[0] (block)", "repeats"]


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


def parts(value, path=()):
    """The path and the value of each part of plain values."""
    yield path, value
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(below, (*path, key))


def test_every_key_is_described_every_number_has_bounds_and_every_pattern_has_words():
    patterns, numbers = set(), 0
    for path, part in parts(config_schema.schema()):
        if path[-1:] == ("pattern",) and isinstance(part, str):
            patterns.add(part)
        if not isinstance(part, dict):
            continue
        for name, value in part.get("properties", {}).items():
            assert "description" in value, (*path, name)
        kinds = part.get("type")
        kinds = {kinds} if isinstance(kinds, str) else set(kinds or ())
        open_ended = "string" in kinds or path[-1:] in (("perplexity",), ("final_loss",))
        if kinds & {"integer", "number"} and not open_ended and "enum" not in part:
            numbers += 1
            assert {"minimum", "exclusiveMinimum"} & part.keys(), path
            assert {"maximum", "exclusiveMaximum"} & part.keys(), path
    assert patterns == set(config_schema.PATTERNS) and numbers > 40


def test_the_largest_run_fits_into_the_table():
    axes = config_schema.schema()["$defs"]["axes"]["properties"]
    most = {n: axes[n]["maximum"] for n in FIELDS if "maximum" in axes.get(n, {}) and n != "epochs"}
    (run,) = study(RUN | most).runs
    row = dict.fromkeys(table_columns.RUNS.names) | {n: getattr(run, n) for n in CONDITION}
    row |= {"devices": run.devices, "global_batch": run.global_batch, "run_id": run.id}
    assert parquet_files.table([row], table_columns.RUNS).num_rows == 1


def test_the_names_of_columns_in_the_schema_are_those_there_are():
    properties = config_schema.schema()["properties"]
    match = properties["references"]["items"]["properties"]["match"]["items"]["enum"]
    assert match == list(published_numbers.SETTINGS)
    fields = properties["imports"]["items"]["properties"]["fields"]["propertyNames"]["enum"]
    assert fields == table_columns.IMPORTABLE


EXAMPLE = STUDY | {
    "matrix": [BLOCK | {"dataset": "digits", "epochs": 1, "must_reach": {"top1": 0.5},
                        "exclude": [{"batch_per_device": 8}],
                        "include": [{"batch_per_device": 16}]}],
    "compare": [{"field": "batch_per_device", "base": 16}],
    "images": {"train": {"source": "docker://x", "binds": ["/a"]}},
    "trainers": {"mine": {"command": ["x"], "log": "auto"}},
}  # fmt: skip
WRONG = [None, "", "?", "1e-3", -1, 0, 1.5, HUGE, math.nan, math.inf, True, [], [[]], {}, {"?": {}}]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_one_wrong_value_is_at_most_one_error_and_never_a_crash(wrong):
    for path, _ in parts(EXAMPLE):
        if not path:
            continue
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


AXES = config_schema.axes()
SHORT = BLOCK | {"steps": 5}
HOROVOD = SHORT | {"strategy": "horovod"}
STRONG = {"name": "strong", "model": "lenet5", "dataset": "synthetic", "steps": 5,
          "strategy": "mirrored"}  # fmt: skip


def test_the_keys_are_the_fields_of_a_config_and_those_that_make_fields():
    fields = {n for n in DECLARED if DECLARED[n].in_config}
    assert set(AXES) == fields | {"global_batch", "parameters"}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("precision", ["float32"], ["fp8", 1]),
        ("steps", [1, 10**9], [0, 1.5, "max", True, 10**9 + 1]),
        ("batch_per_device", [1, "max"], [0, "most"]),
        ("global_batch", [1], ["max", 0]),
        ("learning_rate", [0.1, 1], [0, "high"]),
        ("xla", [True], ["yes", 1]),
        ("node", ["n[1-8]"], ["n 1"]),
        ("strategy_options", [{"a": 1}], [{}, {"a": []}, "a=1"]),
    ],
)
def test_a_key_takes_one_value_or_a_list_and_refuses_what_is_not_declared(name, right, wrong):
    check = jsonschema.Draft202012Validator(AXES[name])
    assert all(check.is_valid(value) for value in (*right, right))
    assert not any(check.is_valid(value) for value in (*wrong, *([value] for value in wrong), []))


def sizes(made):
    return sorted((run.devices, run.batch_per_device) for run in made.runs)


def test_a_global_batch_is_shared_by_all_devices_of_all_nodes():
    made = study(STRONG | {"global_batch": 64, "devices_per_node": [1, 2, 4]})
    assert sizes(made) == [(1, 64), (2, 32), (4, 16)]
    nodes = {"strategy": "multiworker", "launcher": "srun", "nodes": 3, "devices_per_node": 2}
    assert sizes(study(STRONG | nodes | {"global_batch": [24, 48]})) == [(6, 4), (6, 8)]
    weak = study(STRONG | {"batch_per_device": [64, 32, 16], "devices_per_node": [1, 2, 4]})
    assert {run.id for run in made.runs} < {run.id for run in weak.runs}


def test_a_combination_whose_global_batch_cannot_be_shared_evenly_is_refused_unless_excluded():
    block = STRONG | {"global_batch": [12, 16], "devices_per_node": [1, 3]}
    assert refused(block) == (
        "matrix[0] (strong): a global_batch of 16 cannot be shared evenly by 3 devices; exclude "
        "that combination or choose another global_batch"
    )
    made = study(block | {"exclude": [{"global_batch": 16, "devices_per_node": 3}]})
    assert sizes(made) == [(1, 12), (1, 16), (3, 4)]
    assert [left_out.values["global_batch"] for left_out in made.excluded] == [16]


def test_weak_and_strong_scaling_that_meet_in_one_run_say_so():
    weak = STRONG | {"name": "weak", "batch_per_device": 8, "devices_per_node": [1, 2]}
    strong = STRONG | {"global_batch": 16, "devices_per_node": [1, 2]}
    message = refused(weak, strong)
    assert message.startswith("matrix[1] (strong): lenet5 synthetic batch 8, mirrored on 2 devices")
    assert message.endswith("is already in matrix[0] (weak); exclude it from one of the two")
    made = study(weak, strong | {"exclude": [{"devices_per_node": 2, "reason": "as weak"}]})
    assert sizes(made) == [(1, 8), (1, 16), (2, 8)]


def test_a_list_of_nodes_as_slurm_writes_it_is_one_run_a_node_and_some_can_be_excluded():
    runs = study(SHORT | {"node": ["gpu[08-10]", "login"], "exclude": [{"node": "gpu09"}]}).runs
    assert sorted(run.node for run in runs) == ["gpu08", "gpu10", "login"]
    assert len({run.id for run in runs}) == 3
    assert study(SHORT).runs[0].node is None


def test_the_nodes_of_a_run_on_several_are_one_text_and_one_run_however_they_are_written():
    pairs = HOROVOD | {"launcher": "srun", "nodes": 2}
    (one,) = study(pairs | {"node": "n[1-2]"}).runs
    (same,) = study(pairs | {"node": "n[2,1]"}).runs
    assert (one.node, one.nodes, one.id) == ("n[1-2]", 2, same.id)
    both = study(pairs | {"node": ["n[1-2]", "n[3,5]"]}).runs
    assert sorted(run.node for run in both) == ["n[1-2]", "n[3,5]"]


def test_mappings_of_options_of_a_strategy_are_an_axis_and_may_be_excluded():
    fp16, none = {"compression": "fp16", "cycle_time_ms": 1}, {"gradient_groups": 0}
    excluded = {"strategy_options": none, "batch_per_device": 16}
    options = [{"compression": "none"}, fp16, none]
    block = HOROVOD | {"strategy_options": options, "batch_per_device": [8, 16]}
    runs = study(block | {"exclude": [excluded]}).runs
    texts = ["", "compression=fp16,cycle_time_ms=1.0", "gradient_groups=0"]
    found = sorted((run.batch_per_device, run.strategy_options) for run in runs)
    assert found == [(8, texts[0]), (8, texts[1]), (8, texts[2]), (16, texts[0]), (16, texts[1])]
    assert sum("compression=fp16" in run.label() for run in runs) == 2


def test_a_default_option_that_is_given_is_the_same_run_as_one_left_out():
    (without,) = study(HOROVOD).runs
    for options in ({"cycle_time_ms": 5}, {"cycle_time_ms": 5.0, "timeline": False}):
        (run,) = study(HOROVOD | {"strategy_options": options}).runs
        assert run.id == without.id


def test_any_field_of_a_run_can_be_compared():
    bases = {"copies_per_node": 1, "runtime": "bare", "runtime_options": "", "xla": False}
    bases |= {"learning_rate": 0.01, "strategy": "single"}
    entries = [{"field": field, "base": base} for field, base in bases.items()]
    assert study(SHORT, compare=entries).compare == tuple(entries)
