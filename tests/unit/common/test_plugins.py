"""plugins and own_code: plugins by their names, and the files that a program executes."""

import ast

import pytest

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.trainer import engine

STRATEGIES = [engine.plugin_kind(name, "strategies") for name in engine.names()]
MODELS = ("keras/models", "pytorch/models")


def test_a_name_without_a_file_is_refused_with_the_nearest():
    with pytest.raises(plugins.UnknownName) as error:
        plugins.path("keras/models", "lenet")
    assert str(error.value).startswith("no file models/lenet.py (did you mean 'lenet5'?); there")


def test_a_file_for_many_things_defines_each_whose_name_begins_with_its_own():
    assert plugins.path("datasets", "text_books") == plugins.path("datasets", "text")
    assert plugins.load("datasets", "text_books") is plugins.load("datasets", "text")
    assert plugins.is_known("datasets", "text_books") and plugins.is_known("datasets", "text")
    for name in ("text_", "texts", "digits_books", "textbooks"):
        assert not plugins.is_known("datasets", name)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("launchers", "unsupported command"),
        ("runtimes", "CONTAINED OPTIONS"),
        ("figures", "CAPTION CATEGORY draw"),
        *((kind, "Strategy") for kind in STRATEGIES),
        *((kind, "TASK INPUT_SHAPE CLASSES build") for kind in MODELS),
        ("datasets", "TITLE LICENCE CITATION SYNTHETIC"),
    ],
)
def test_every_file_defines_what_its_kind_must_and_most_load_without_a_framework(kind, wanted):
    assert plugins.names(kind)
    for name in plugins.names(kind):
        names = set(wanted.split())
        if kind == "runtimes" and name != "bare":  # those of containers
            names |= {"FORWARDS_LIBRARY_PATH", "PROGRAMS"}
            names |= {"prepare", "prepared", "command"}
            assert plugins.load(kind, name).CONTAINED
        found = defined(plugins.path(kind, name)) | plugins.constants(kind, name).keys()
        assert names <= found, f"{kind}/{name}"
        if not kind.endswith("models"):  # the workflow loads the others
            assert plugins.load(kind, name).__doc__, f"{kind}/{name} has no docstring"


def defined(path):
    found = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_a_kind_may_be_that_of_one_framework():
    assert plugins.folder_of("trainer/keras/models") == plugins.folder_of("keras/models")
    of_both = [plugins.load(f"{name}/strategies", "single") for name in ("tensorflow", "jax")]
    assert of_both[0] is not of_both[1]


def test_a_kind_that_two_frameworks_have_is_not_guessed(library):
    for name in ("trainer/jax", "trainer/tensorflow"):
        (library / name / "optimizers").mkdir(parents=True)
        (library / name / "optimizers/__init__.py").touch()
    with pytest.raises(Error, match="found trainer/jax/optimizers, trainer/tensorflow/optimizers"):
        plugins.folder_of("optimizers")
    assert plugins.folder_of("jax/optimizers") == library / "trainer/jax/optimizers"


def test_a_family_of_models_is_one_file_whose_models_have_their_own_constants():
    keras, pytorch = (
        {name: plugins.path(kind, name).name for name in plugins.names(kind)} for kind in MODELS
    )
    assert keras == pytorch
    assert keras["gpt_tiny"] == keras["gpt2_small"] == "transformers.py"
    assert "transformers" not in keras
    tiny, small = (plugins.constants("keras/models", name) for name in ("gpt_tiny", "gpt2_small"))
    assert (tiny["TASK"], tiny["CLASSES"]) == ("language", 256)
    assert (small["TASK"], small["CLASSES"]) == ("language", 50_257)


def test_a_model_has_the_same_constants_under_each_framework():
    for name in plugins.names("keras/models"):
        keras, pytorch = (plugins.constants(kind, name) for kind in MODELS)
        for constant in ("TASK", "INPUT_SHAPE", "CLASSES"):
            assert pytorch[constant] == keras[constant], (name, constant)
        if name != "lenet5":  # its file for PyTorch has its own
            assert pytorch == keras | {"CONSTANTS_OF": "keras/models"}, name


def test_build_of_a_family_is_told_which_of_its_models(tmp_path):
    (tmp_path / "mlp.py").write_text(
        'VARIANTS = {"mlp1": {"DEPTH": 1}, "mlp2": {}}\nDEPTH = 2\n'
        "def build(input_shape, classes, constants):\n    return input_shape, classes, constants\n"
    )
    plugins.add_user_folder("models", tmp_path)
    try:
        one, two = (plugins.load("keras/models", name) for name in ("mlp1", "mlp2"))
        assert not plugins.is_known("keras/models", "mlp")
    finally:
        plugins.add_user_folder("models")
    assert (one.DEPTH, two.DEPTH) == (1, 2)
    variants = {"mlp1": {"DEPTH": 1}, "mlp2": {}}
    known = {"VARIANTS": variants, "DEPTH": 1, "NAME": "mlp1"}
    assert one.build((3,), 7) == ((3,), 7, known)
    assert two.build((3,), 7)[2] == {"VARIANTS": variants, "DEPTH": 2, "NAME": "mlp2"}


@pytest.fixture
def library(tmp_path, monkeypatch):
    for name in ("rooms/figures/rnn", "rooms/figures/_shared", "rooms/figures/old/gru"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"NAME = {path.stem!r}\n")
    (tmp_path / "rooms/figures/__init__.py").touch()
    monkeypatch.setattr(plugins, "LIBRARY", tmp_path)
    forget_files()
    yield tmp_path
    forget_files()


def test_plugins_are_the_files_of_their_folder_but_those_that_they_share(library):
    assert plugins.names("figures") == ["rnn"]
    assert plugins.path("figures", "rnn") == library / "rooms/figures/rnn.py"
    assert plugins.constants("figures", "rnn") == {"NAME": "rnn"}


def forget_files():
    plugins.folder_of.cache_clear()
    plugins.add_user_folder("models")


def test_models_of_the_user_are_found_under_any_framework_and_told_from_ours(tmp_path):
    (tmp_path / "mine.py").touch()
    plugins.add_user_folder("models", tmp_path)
    try:
        assert plugins.is_builtin("keras/models", "lenet5")
        assert not plugins.is_builtin("keras/models", "mine")
        for framework in engine.names():
            assert "mine" in plugins.names(engine.plugin_kind(framework, "models"))
    finally:
        plugins.add_user_folder("models")
    (tmp_path / "vit_b16.py").touch()
    with pytest.raises(Error, match=r"vit_b16.py: vit_b16 is in models/transformers.py of ours"):
        plugins.add_user_folder("models", tmp_path)


def test_constants_are_read_without_importing():
    figure = plugins.constants("figures", "loss")
    assert figure["CATEGORY"] == "Learning"
    assert figure["CAPTION"].strip().startswith("Training loss")
    with pytest.raises(TypeError):  # they are those of all callers
        figure["CATEGORY"] = "Mine"


def test_imports_for_type_hints_alone_are_not_executed(tmp_path):
    path = tmp_path / "hinted.py"
    hints = "if TYPE_CHECKING:\n    from dlbench.images import oci\n"
    path.write_text(f"{hints}def read():\n    from dlbench.common import files\n")
    executed = own_code.executed_files("train.py", path)
    assert "workflow_scripts/dlbench/common/files.py" in executed
    assert "workflow_scripts/dlbench/images/oci.py" not in executed


IMPORT = "from dlbench.images import oci"


@pytest.mark.parametrize(
    "source",
    [
        f"with open(__file__):\n    {IMPORT}\n",
        f"for _ in ():\n    pass\nelse:\n    {IMPORT}\n",
        f"try:\n    pass\nexcept OSError:\n    {IMPORT}\nfinally:\n    pass\n",
        f"try:\n    pass\nfinally:\n    {IMPORT}\n",
        f"match 1:\n    case 1:\n        {IMPORT}\n",
        f"class Reader:\n    async def read(self):\n        if self:\n            {IMPORT}\n",
    ],
)
def test_an_import_counts_inside_any_statement(tmp_path, source):
    path = tmp_path / "importing.py"
    path.write_text(source)
    executed = own_code.executed_files("train.py", path)
    assert "workflow_scripts/dlbench/images/oci.py" in executed


def test_a_file_that_is_not_python_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef (\n")
    with pytest.raises(Error, match=r"broken\.py, line 2: not valid Python"):
        own_code.executed_files("train.py", path)
