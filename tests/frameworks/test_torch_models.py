"""PyTorch's models equal Keras's: layers, settings, initial weights and outputs."""

import json
import subprocess

import numpy as np
import pytest

from dlbench.study import trainer_environments
from support.machines.paths import REPOSITORY
from support.trainers.published_models import PARAMETERS, SMALL_ITEMS

PROGRAM = REPOSITORY / "tests/support/trainers/model_parity.py"
BESIDE = REPOSITORY / "tests/support/trainers/beside_transformers.py"
COUNTED = """
import json, sys, torch
sys.path.insert(0, "workflow_scripts")
from dlbench.common import plugins
torch.set_default_device("meta")  # weights would take gigabytes
counts = {}
for name in plugins.names("pytorch/models"):
    native = plugins.load("pytorch/models", name)
    model = native.build(native.INPUT_SHAPE, native.CLASSES)
    counts[name] = sum(p.numel() for p in model.parameters())
print(json.dumps(counts))
"""


def started(*command):
    finished = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def both(python, tmp_path_factory):
    """A function that gives facts and arrays of a model under both frameworks."""
    folder = tmp_path_factory.mktemp("models")
    for framework in ("tensorflow", "pytorch"):
        started(python(framework), PROGRAM, framework, folder, *SMALL_ITEMS)

    def of(name):
        stems = (name, f"pytorch-{name}")
        facts = [json.loads((folder / f"{stem}.json").read_text()) for stem in stems]
        return facts, [dict(np.load(folder / f"{stem}.npz")) for stem in stems]

    return of


@pytest.mark.ci
def test_models_of_pytorch_have_the_published_number_of_parameters(python):
    assert json.loads(started(python("pytorch"), "-c", COUNTED)) == PARAMETERS


@pytest.mark.parametrize("name", SMALL_ITEMS)
def test_the_same_weights_and_items_give_the_same_logits(both, name):
    _, (keras, pytorch) = both(name)
    assert pytorch["logits"].shape == keras["logits"].shape
    difference = np.linalg.norm(pytorch["logits"] - keras["logits"])
    assert difference < 1e-5 * np.linalg.norm(keras["logits"] - keras["logits"].mean())


@pytest.mark.parametrize("name", SMALL_ITEMS)
def test_layers_have_the_same_settings_and_weights_that_begin_alike(both, name):
    (keras, pytorch), arrays = both(name)
    assert pytorch["trained"] == keras["trained"]
    assert pytorch["dropout"] == keras["dropout"]
    np.testing.assert_allclose(pytorch["moments"], keras["moments"], rtol=1e-12)
    vectors, ours = ({n: a for n, a in each.items() if n != "logits"} for each in arrays)
    assert ours.keys() == vectors.keys()
    for path, array in vectors.items():  # zeros and ones
        np.testing.assert_array_equal(ours[path], array, err_msg=path)
    assert pytorch["beginning"].keys() == keras["beginning"].keys()
    for path, spread in keras["beginning"].items():
        if spread:
            # The largest of some thousand numbers of a normal distribution scatters by a tenth.
            for found, wanted, most in zip(
                pytorch["beginning"][path], spread, (0.1, 0.25), strict=True
            ):
                assert found == pytest.approx(wanted, rel=most), path


def test_llama_and_mixtral_are_those_of_transformers():
    python = REPOSITORY / trainer_environments.trainer_python("huggingface")
    if not python.exists():
        pytest.skip("envs/huggingface is not there; dlbench environment makes it")
    for name, found in json.loads(started(python, BESIDE)).items():
        assert found.pop("parameters") == [PARAMETERS[name]] * 2
        ours, theirs = found.pop("balance", (0, 0))
        assert ours == pytest.approx(theirs, rel=1e-5)
        assert (ours > 0.04) == (name == "mixtral_tiny")
        assert max(found.values()) < 1e-5, (name, found)
