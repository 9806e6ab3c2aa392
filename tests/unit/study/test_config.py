"""config: which runs a config has, and with what."""

import copy
import itertools
import json
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.machine import redaction
from dlbench.plan import planning
from dlbench.records import judgement
from dlbench.study import config, config_schema, matrix, yaml_files
from dlbench.study import config as config_module
from dlbench.study.config_schema import ConfigError
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.studies.made_studies import BLOCK, STUDY, refused, study

SHORT = BLOCK | {"steps": 5}
DIGITS = BLOCK | {"dataset": "digits"}


def of(made, *names):
    """What the runs of a study have of some fields."""
    return sorted(tuple(getattr(run, name) for name in names) for run in made.runs)


def test_the_default_study_is_valid_and_as_the_readme_says():
    made = config.study(config.read("config.yaml"))
    fields = ("model", "strategy", "devices", "repeat")
    found = [{getattr(run, name) for run in made.runs} for name in fields]
    assert found == [{"lenet5", "cnn12"}, {"single", "mirrored", "horovod"}, {1, 2}, {1, 2, 3}]
    assert {run.dataset for run in made.runs} == {"synthetic", "digits"}
    assert all(left_out.reason for left_out in made.excluded)


def test_every_combination_of_the_lists_becomes_a_run():
    block = SHORT | {"batch_per_device": [8, 16], "precision": ["float32", "bfloat16"]}
    found = of(study(block), "batch_per_device", "precision")
    assert found == [(8, "bfloat16"), (8, "float32"), (16, "bfloat16"), (16, "float32")]
    values = SHORT | {"precision": "float32", "strategy": "mirrored"}
    lists = {key: [value] for key, value in values.items() if key != "name"} | {"name": "block"}
    assert study(values).runs == study(lists).runs


@pytest.mark.parametrize(
    ("rule", "kept", "reason"),
    [
        ({"batch_per_device": 16, "reason": "too big"}, [(8,), (32,)], "too big"),
        # The block leaves the precision at its default.
        ({"batch_per_device": [16, 32], "precision": "float32"}, [(8,)], "excluded in the config"),
    ],
)
def test_excluded_combinations_are_kept_with_their_reason(rule, kept, reason):
    made = study(SHORT | {"batch_per_device": [8, 16, 32], "exclude": [rule]})
    assert of(made, "batch_per_device") == kept
    assert {(left_out.block, left_out.reason) for left_out in made.excluded} == {("block", reason)}
    assert made.excluded[0].values["batch_per_device"] == 16


def test_included_combinations_may_be_lists_and_take_the_single_values_of_their_block():
    added = {"model": "cnn12", "batch_per_device": [16, 32], "precision": "float16"}
    made = study(SHORT | {"batch_per_device": [8, 16], "include": [added]})
    assert of(made, "model", "batch_per_device", "precision", "dataset", "steps") == [
        *(("cnn12", batch, "float16", "synthetic", 5) for batch in (16, 32)),
        *(("lenet5", batch, "float32", "synthetic", 5) for batch in (8, 16)),
    ]


def test_the_same_run_twice_is_refused_with_both_places():
    message = refused(SHORT, SHORT | {"name": "again"})
    assert "matrix[1] (again)" in message and "is already in matrix[0] (block)" in message
    assert "is already in matrix[0] (block)" in refused(SHORT | {"include": [{"model": "lenet5"}]})


def test_a_block_may_have_repeats_of_its_own():
    made = study(SHORT | {"repeats": 3}, BLOCK | {"name": "other", "steps": 6})
    assert of(made, "steps", "repeat") == [(5, 1), (5, 2), (5, 3), (6, 1)]


def test_the_order_of_the_runs_follows_the_seed_and_the_config_stays_as_it_is():
    before = copy.deepcopy(STUDY)
    block = SHORT | {"batch_per_device": list(range(1, 20))}
    orders = [[run.id for run in study(block, seed=seed).runs] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
    assert before == STUDY


@pytest.mark.parametrize(
    ("strategy", "launcher", "nodes", "fitting"),
    [
        ("multiworker", "mpirun", 2, ["kubernetes", "srun"]),
        ("parameter_server", "horovodrun", 1, ["kubernetes", "local", "srun"]),
        ("horovod", "torchrun", 1, ["flux", "horovodrun", "mpiexec", "mpirun", "srun"]),
    ],
)
def test_a_launcher_whose_processes_would_not_meet_is_refused_with_those_that_work(
    strategy, launcher, nodes, fitting
):
    block = SHORT | {"strategy": strategy, "launcher": launcher, "nodes": nodes}
    output = refused(block)
    assert f"launcher {launcher} does not let the processes of strategy {strategy} find" in output
    assert f"these do: {', '.join(fitting)}. " in output
    for name in fitting:
        assert study(block | {"launcher": name}).runs[0].launcher == name


def test_launcher_and_environment_are_those_of_strategy_and_framework_unless_named():
    two = SHORT | {"devices_per_node": 2, "strategy": "horovod"}
    ddp = two | {"framework": "pytorch", "strategy": "ddp"}
    found = [of(study(block), "launcher") for block in (two, ddp, two | {"launcher": "mpirun"})]
    assert found == [[("horovodrun",)], [("torchrun",)], [("mpirun",)]]
    made = study(SHORT | {"framework": ["tensorflow", "jax", "pytorch"]})
    pairs = [("jax", "jax"), ("pytorch", "pytorch"), ("tensorflow", "train")]
    assert of(made, "framework", "environment") == pairs
    made = study(SHORT | {"environment": ["train", "train-latest"]})
    assert of(made, "environment") == [("train",), ("train-latest",)]
    assert len({run.id for run in made.runs}) == 2


def test_an_environment_of_another_framework_is_refused_and_those_that_fit_are_named():
    assert refused(SHORT | {"environment": "jax"}).endswith(
        ".environment: envs/jax is an environment of jax, and the run is one of tensorflow; "
        "environments with tensorflow: train, train-cuda, train-latest. Frameworks whose "
        "environments differ need a block each"
    )
    # In a container an image of that name may have anything; one built from the folder has not.
    entered = SHORT | {"environment": "jax", "runtime": "apptainer"}
    assert study(entered, images={"jax": {"source": "docker://x/y"}}).runs
    assert "envs/jax is an environment of jax" in refused(entered)


def test_a_strategy_may_be_one_of_any_of_the_frameworks_of_a_block():
    block = SHORT | {"framework": ["tensorflow", "jax"]}
    assert len(study(block | {"strategy": ["single", "mirrored", "sharded"]}).runs) == 6
    message = refused(SHORT | {"framework": "jax", "strategy": "mirrored"})
    assert "no file strategies/mirrored.py" in message


def test_of_two_files_the_last_one_wins_and_neither_is_changed():
    base, over = {"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": None}
    before = copy.deepcopy((base, over))
    assert config.merge(base, over) == {"a": {"b": 1, "c": [3]}, "d": None}
    assert (base, over) == before


def test_a_config_that_is_no_mapping_is_refused(tmp_path):
    for text, message in (("[a]", r'expected a mapping, found \["a"\]'), ("# x", "keys: study, m")):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            config.study(config.read(tmp_path / "mine.yaml"))


def test_copies_are_not_checkpointed():
    block = SHORT | {"copies_per_node": [1, 2]}
    assert of(study(block), "copies_per_node") == [(1,), (2,)]
    message = refused(block, checkpoint_every_min=30)
    assert "copies_per_node and checkpoint_every_min exclude each other" in message
    assert study(block | {"copies_per_node": 1}, checkpoint_every_min=30).runs


def test_a_writer_of_checkpoints_needs_checkpoints_and_its_framework():
    block = SHORT | {"framework": "pytorch", "checkpoint_writer": ["numpy", "dcp_async"]}
    expected = "checkpoint_writer dcp_async writes checkpoints, and there are none: say checkpoint_"
    assert expected in refused(block)
    runs = study(block, checkpoint_every_min=10).runs
    assert sorted("checkpoint_writer" in run.values() for run in runs) == [False, True]
    runs = study(block | {"framework": "jax"}, checkpoint_every_min=10).runs
    (reason,) = filter(None, map(engine.unsupported, runs))
    assert "checkpoint_writer is a field of framework pytorch" in reason


# What runs must learn.


def test_a_gate_is_kept_for_every_run_of_its_block_and_changes_none():
    scores = {"top1": 0.9, "final_loss": 0.5}
    gated = DIGITS | {"epochs": 2, "must_reach": scores, "repeats": 2}
    made = study(gated, SHORT | {"name": "other"})
    of_digits = {run.id for run in made.runs if run.dataset == "digits"}
    assert made.must_reach == dict.fromkeys(of_digits, scores) and len(of_digits) == 2
    del gated["must_reach"]
    assert set(study(gated).runs) <= set(made.runs)


@pytest.mark.parametrize(
    ("block", "scores"),
    [
        (DIGITS | {"epochs": 2}, {"top5": 1.0}),
        (DIGITS | {"steps": 5, "evaluate": "yes"}, {"top1": 0.5}),
        (SHORT, {"final_loss": 1}),
        (BLOCK | {"model": "lstm_ptb", "dataset": "ptb", "epochs": 2}, {"perplexity": 120}),
        (BLOCK | {"model": "unet", "dataset": "blends", "epochs": 2}, {"iou": 0.5}),
    ],
)
def test_scores_that_a_run_will_have_are_accepted(block, scores):
    assert list(study(block | {"must_reach": scores}).must_reach.values()) == [scores]


OURS = str(REPOSITORY / "config.yaml")
OWN = BLOCK | {"model": "cnn12", "dataset": "photos", "steps": 5}
MODEL = 'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\n'
DATASET = 'KIND = "image"\nSYNTHETIC = False\nTITLE = "ours"\n'


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of another workflow, with a config.yaml."""
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("study: theirs\n")
    return tmp_path


def test_at_home_config_yaml_is_read_and_site_yaml_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert config.files() == ["config.yaml"]
    (tmp_path / "site.yaml").touch()
    assert config.files() == ["config.yaml", "site.yaml"]


def test_elsewhere_ours_comes_first_and_a_module_leaves_config_yaml_to_the_other(elsewhere):
    assert config.files() == [OURS, "config.yaml"]
    assert config.files(in_a_module=True) == [OURS]
    assert config.settings_of([]) == config.read(OURS) | {"study": "theirs"}


def test_what_a_module_is_given_is_laid_over_ours_and_over_what_the_site_says(elsewhere):
    (elsewhere / "site.yaml").write_text("site: {name: there, nodes: 3}\n")
    merged = config.laid_over({"study": "given", "site": {"nodes": 4}})
    ours = config.read(OURS)
    assert merged == ours | {"study": "given", "site": ours["site"] | {"name": "there", "nodes": 4}}


def test_in_the_config_of_another_workflow_ours_is_what_stands_under_dlbench(elsewhere):
    both = {"samples": ["a"], "dlbench": {"study": "given"}}
    assert config.laid_over(both)["study"] == "given"
    assert "samples" not in config.laid_over(both)
    (elsewhere / "both.yaml").write_text(yaml.safe_dump(both))
    assert config.settings_of(["both.yaml"])["study"] == "given"


def test_a_file_that_is_named_and_not_there_is_said(elsewhere):
    with pytest.raises(ConfigError, match=r"--configfile none\.yaml: there is no such file"):
        config.settings_of(["none.yaml"])


# Models and datasets of the user.


@pytest.fixture
def folder(tmp_path):
    """A function that writes files into a folder of the user, and gives the folder."""

    def make(own="own", **texts):
        (tmp_path / own).mkdir(exist_ok=True)
        for name, text in texts.items():
            (tmp_path / own / f"{name}.py").write_text(text)
        return str(tmp_path / own)

    yield make
    plugins.set_user_names("datasets", "images", [])
    for kind in ("models", "datasets"):
        plugins.add_user_folder(kind)


def pictures(name):
    return STUDY["data"] | {"images": {name: {"path": "/data/photos"}}}


def test_a_name_of_pictures_is_a_dataset_of_its_config_and_of_no_other(folder):
    assert study(OWN, data=pictures("photos")).runs[0].dataset == "photos"
    message = refused(OWN | {"dataset": "fotos"}, data=pictures("photos"))
    assert "no file datasets/fotos.py (did you mean 'photos'?)" in message
    assert "no file datasets/photos.py" in refused(OWN)


def test_names_of_pictures_that_a_dataset_has_already_are_refused(folder):
    for name in ("cifar10", "text_books"):
        message = refused(data=pictures(name))
        assert message.startswith(f"data.images.{name}: the file datasets/")
    message = "data.images.photos: the file datasets/photos.py has this name; choose another one"
    assert refused(data=pictures("photos"), dataset_folder=folder(photos=DATASET)) == message


def test_a_file_of_the_users_folder_is_a_dataset_of_its_config_and_of_no_other(folder):
    made = study(OWN, dataset_folder=folder(photos=DATASET))
    assert (made.runs[0].dataset, made.dataset_folder) == ("photos", folder())
    assert judgement.recipe("photos") and "photos" in plugins.names("datasets")
    assert "no file datasets/photos.py" in refused(OWN)


def test_a_file_of_the_users_folder_is_a_model_of_its_config_and_of_no_other(folder):
    block = BLOCK | {"steps": 5, "model": ["mine", "lenet5"]}
    made = study(block, model_folder=folder(mine=MODEL))
    assert {run.model for run in made.runs} == {"mine", "lenet5"}
    assert made.model_folder == folder() and "mine" in plugins.names("keras/models")
    message = refused(block | {"model": "mien"}, model_folder=folder())
    assert "no file models/mien.py (did you mean 'mine'?)" in message
    assert "no file models/mine.py" in refused(block)
    assert "mine" not in plugins.names("keras/models")


@pytest.mark.parametrize(
    ("kind", "name", "text", "message"),
    [
        ("model", "lenet5", MODEL, "lenet5 is in models/lenet5.py of ours; choose"),
        (
            "dataset",
            "digits",
            DATASET,
            "digits.py: digits is in datasets/digits.py of ours; ",
        ),
        (
            "dataset",
            "x",
            "TASK = 1",
            "x.py: expected SYNTHETIC = False and a KIND, as files of",
        ),
        ("dataset", "x", DATASET.replace("False", "True"), "expected SYNTHETIC = False"),
        ("dataset", "x", "KIND = (", "x.py, line 1: not valid Python"),
    ],
)
def test_files_that_cannot_be_the_users_are_refused(folder, kind, name, text, message):
    found = refused(**{f"{kind}_folder": folder(**{name: text})})
    assert found.startswith(f"{kind}_folder: ") and message in found


def test_a_model_without_a_task_that_there_is_is_named(folder):
    own = BLOCK | {"steps": 5, "model": "mine"}
    found = refused(own, model_folder=folder(mine='TASK = "classifying"\n'))
    assert "no task classifying (did you mean 'classification'?)" in found
    found = refused(own, model_folder=folder(mine=""))
    assert "TASK of model mine: no task None; there are: classification" in found


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_folder_of_the_user_that_is_missing_is_named(kind):
    message = f"{kind}_folder: /none: expected a folder with {kind}s of your own, found none"
    assert refused(**{f"{kind}_folder": "/none"}) == message


def test_what_only_describes_a_dataset_of_the_user_is_in_no_digest(folder):
    digests = []
    texts = (DATASET, DATASET.replace("ours", "mine"), DATASET + "SPLITS = {}\n")
    for number, text in enumerate(texts):
        study(dataset_folder=folder(str(number), photos=text))
        digests.append(own_code.digest([str(plugins.path("datasets", "photos"))]))
    assert digests[0] == digests[1] != digests[2]


def test_commands_are_handed_on_without_their_secrets_which_go_by_a_variable():
    arguments = ["run", "--token=abc-{model}", "--key", "def", "--max-tokens={steps}"]
    config = {
        "site": {"power_meter": "ipmitool -P abc- sdr", "power_limit_command": None},
        "trainers": {"theirs": {"command": arguments}, "plain": {"command": ["run"]}},
    }
    found = config_module.hide(config)
    assert found.site == {"power_meter": "ipmitool -P (hidden-0) sdr"}
    hidden = ["run", "--token=(hidden-0){model}", "--key", "(hidden-1)", "--max-tokens={steps}"]
    assert found.trainers == {"theirs": hidden, "plain": ["run"]}
    assert redaction.restored(hidden, found.variables) == arguments
    config["trainers"].pop("theirs")
    config["site"]["power_meter"] = "watts"
    assert config_module.hide(config).variables == {}


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
