"""Commands and the environment as they are recorded: without secrets.

- Variables are recorded by an allow-list of those that change the speed of training.
- Never recorded, also inside values and commands: a value whose name says that it is a secret,
  the user in a URL, and keys of well-known services.
"""

import fnmatch
import functools
import os
import re
from collections.abc import Iterable, Mapping

HIDDEN = "(hidden)"
ALLOWED = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "TF_*", "KERAS_BACKEND"),
    *("JAX_*", "XLA_*", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "DNNL_*", "ONEDNN_*", "GLOO_*"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "NVSHMEM_*"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HOROVOD_*", "OMPI_MCA_*", "PMIX_MCA_*"),
    *("MPICH_*", "I_MPI_*", "UCX_*", "FI_*", "PSM2_*", "MALLOC_*", "TCMALLOC_*"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "DLBENCH_COPY"),
)
# Addresses of the processes of one run, Open MPI's key of a job, and variables of Terraform.
LEFT_OUT = (
    *("TF_CONFIG", "JAX_COORDINATOR_*", "HOROVOD_GLOO_RENDEZVOUS_*", "OMPI_MCA_orte_*"),
    *("TF_CLI_*", "TF_VAR_*", "TF_DATA_DIR"),
)
# Each process has its own: they are recorded but not compared between repeats.
OWN = (
    *("*_VISIBLE_DEVICES", "HOROVOD_*RANK", "HOROVOD_*SIZE", "HOROVOD_HOSTNAME", "DLBENCH_COPY"),
    *("OMPI_MCA_*ess_*", "OMPI_MCA_pmix*", "OMPI_MCA_*uri", "OMPI_MCA_initial_wdir"),
    *("OMPI_MCA_*jobid", "OMPI_MCA_*vpid", "PMIX_MCA_*"),
)
_WORDS = (
    r"token(?!i[sz])|passw|passphrase|passwd|pwd|secret|credential|auth|cookie|signature|bearer|"
    r"(?:^|(?<=[^a-z])|api|access|private|ssh|license)keys?(?![a-z])|(?-i:(?<=[a-z])Keys?(?![a-z]))"
)
SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
# The look-behind starts a match once in a long word only, so that time stays linear.
_PAIR = re.compile(
    r"(?<![\w.\-])(?P<name>[\w.\-]+)(?P<is>[\"']?\s*(?:=|:(?!//))\s*)"
    r"(?P<value>(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s\"',;&]+))",
    re.IGNORECASE,
)
_FLAG = re.compile(r"(?P<flag>(?<!\S)--?(?P<name>[\w.\-]+))(?P<gap>\s+)(?P<value>(?!-)\S+)")
_USER = re.compile(
    r"(?<![a-z0-9+.\-])(?P<scheme>[a-z][a-z0-9+.\-]*:(?:\\?/){2})[^/\\\s]*@", re.IGNORECASE
)
# A password right after its letter, as MySQL takes it. Flags of launchers, schedulers and compilers
# that begin so, and numbers, are no passwords.
_SHORT = re.compile(
    r"(?<!\S)-p(?!(?:arallel|arsable|artition|ath|e|erhost|ernode|ersistent|g|id|ipe|mi|ort|pn|"
    r"refix|rint|riority|rofile|roject|rot|thread)(?![\w])|[\d:.]+(?!\S)|[=\s])\S+"
)
# Name and password, of curl, wget and others; two numbers are a user and a group.
_NAMED = re.compile(
    r"(?P<flag>(?<!\S)(?:-u|--(?:proxy-)?user)(?:\s+|=))(?P<name>[^\s:]+):(?!\d+(?!\S))\S+"
)
# GitHub, GitLab, Hugging Face, Slack, OpenAI, AWS, JSON web tokens.
_KEYS = re.compile(
    r"(?<![\w\-.])(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|hf_[A-Za-z0-9]{20,}|"
    r"xox[abprs]-[\w\-]{10,}|sk-(?:proj-)?\w{20,}|AKIA[A-Z0-9]{16}|"
    r"eyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*)"
)


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret.

    >>> [is_secret(n) for n in ("WANDB_API_KEY", "--db-password", "accessKey", "apikey", "KEY")]
    [True, True, True, True, True]
    >>> [is_secret(n) for n in ("TF_CPP_MIN_LOG_LEVEL", "monkey", "keyboard", "tokenizer")]
    [False, False, False, False]
    """
    return bool(SECRET_NAME.search(name))


def redact(text: str) -> str:
    """A text with the secrets in it hidden.

    >>> redact("get https://me:pw@host/x?token=abc --api-key 1 'password: x' -n 2")
    "get https://(hidden)@host/x?token=(hidden) --api-key (hidden) 'password: (hidden)' -n 2"
    """
    text = _USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _NAMED.sub(rf"\g<flag>\g<name>:{HIDDEN}", text)
    text = _SHORT.sub(f"-p{HIDDEN}", text)
    text = _KEYS.sub(HIDDEN, text)
    text = _PAIR.sub(lambda m: _hidden(m, m["name"] + m["is"]), text)
    return _FLAG.sub(lambda m: _hidden(m, m["flag"] + m["gap"]), text)


def redact_command(command: Iterable[str]) -> list[str]:
    """The words of a command, which may contain spaces, with the secrets in them hidden.

    >>> redact_command(["train", "--token", "a b", "--password=c d", "--steps=3", "A_SECRET=x y"])
    ['train', '--token', '(hidden)', '--password=(hidden)', '--steps=3', 'A_SECRET=(hidden)']
    >>> redact_command(["mysql", "-pabc", "-u", "me:abc"])
    ['mysql', '-p(hidden)', '-u', 'me:(hidden)']
    """
    words: list[str] = []
    hide, before = False, ""
    for word in command:
        name, equals, _ = word.partition("=")
        plain = re.fullmatch(r"-*[\w.\-]+", name)
        if hide and not word.startswith("--"):
            words.append(HIDDEN)
        elif plain and equals and is_secret(name):
            words.append(f"{name}={HIDDEN}")
        elif _NAMED.fullmatch(f"{before} {word}"):
            words.append(f"{word.partition(':')[0]}:{HIDDEN}")
        else:
            words.append(redact(word))
        before = word
        secret_flag = plain and not equals and word.startswith("-") and is_secret(name)
        hide = bool(secret_flag and not _SHORT.match(word))
    return words


def recorded_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of an environment that are recorded.

    >>> recorded_variables({"OMP_NUM_THREADS": "2", "HOME": "/home/me", "TF_API_TOKEN": "x"})
    {'OMP_NUM_THREADS': '2'}
    """
    return {
        name: redact(environ[name])
        for name in sorted(environ)
        if _matches(name, ALLOWED) and not _matches(name, LEFT_OUT) and not is_secret(name)
    }


def shared_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The recorded variables that repeats should share."""
    return {name: value for name, value in variables.items() if not _matches(name, OWN)}


def _matches(name, patterns):
    return _compiled(patterns).match(name) is not None


@functools.cache
def _compiled(patterns):
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _hidden(match, before):
    return before + HIDDEN if is_secret(match["name"]) else match[0]
