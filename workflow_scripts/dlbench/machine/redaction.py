"""What is recorded of commands and of the environment, without secrets.

- Variables are recorded by an allow-list: those that change how fast numbers are made.
- A value whose name says that it is a secret is never recorded, nor is the user in a URL, nor
  what has the shape of well-known keys; that holds inside values and commands too.
"""

import fnmatch
import functools
import os
import re

HIDDEN = "(hidden)"
ALLOWED = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "TF_*", "KERAS_BACKEND"),
    *("XLA_FLAGS", "CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "NVSHMEM_*"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HOROVOD_*", "OMPI_MCA_*", "PMIX_MCA_*"),
    *("MPICH_*", "I_MPI_*", "UCX_*", "FI_*", "PSM2_*", "MALLOC_*", "TCMALLOC_*"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "DLBENCH_COPY"),
)
# Addresses of this one run's processes, and Open MPI's key of a job; what is Terraform's.
LEFT_OUT = (
    *("TF_CONFIG", "HOROVOD_GLOO_RENDEZVOUS_*", "OMPI_MCA_orte_*"),
    *("TF_CLI_*", "TF_VAR_*", "TF_DATA_DIR"),
)
# Of these each process has its own: recorded, but no difference between repeats.
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
# What precedes is looked at, so that a long word is begun once only: time stays linear.
_PAIR = re.compile(
    r"(?<![\w.\-])(?P<name>[\w.\-]+)(?P<is>[\"']?\s*(?:=|:(?!//))\s*)"
    r"(?P<value>(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s\"',;&]+))",
    re.IGNORECASE,
)
_FLAG = re.compile(r"(?P<flag>(?<!\S)--?(?P<name>[\w.\-]+))(?P<gap>\s+)(?P<value>(?!-)\S+)")
_USER = re.compile(
    r"(?<![a-z0-9+.\-])(?P<scheme>[a-z][a-z0-9+.\-]*:(?:\\?/){2})[^/\\\s]*@", re.IGNORECASE
)
# A password right behind its letter, as MySQL takes it; what launchers, schedulers and compilers
# call so is none, nor is a number.
_SHORT = re.compile(
    r"(?<!\S)-p(?!(?:arallel|arsable|artition|ath|e|erhost|ernode|ersistent|g|id|ipe|mi|ort|pn|"
    r"refix|rint|riority|rofile|roject|rot|thread)(?![\w])|[\d:.]+(?!\S)|[=\s])\S+"
)
# Of curl, wget and others: name and password; two numbers are those of a user and a group.
_NAMED = re.compile(
    r"(?P<flag>(?<!\S)(?:-u|--(?:proxy-)?user)(?:\s+|=))(?P<name>[^\s:]+):(?!\d+(?!\S))\S+"
)
# GitHub, GitLab, Hugging Face, Slack, OpenAI, AWS, JSON web tokens.
_KEYS = re.compile(
    r"(?<![\w\-.])(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|hf_[A-Za-z0-9]{20,}|"
    r"xox[abprs]-[\w\-]{10,}|sk-(?:proj-)?\w{20,}|AKIA[A-Z0-9]{16}|"
    r"eyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*)"
)


def is_secret(name):
    """Whether a name says that its value is a secret.

    >>> [is_secret(n) for n in ("WANDB_API_KEY", "--db-password", "accessKey", "apikey", "KEY")]
    [True, True, True, True, True]
    >>> [is_secret(n) for n in ("TF_CPP_MIN_LOG_LEVEL", "monkey", "keyboard", "tokenizer")]
    [False, False, False, False]
    """
    return bool(SECRET_NAME.search(name))


def text(value):
    """A text without the secrets in it.

    >>> text("get https://me:pw@host/x?token=abc --api-key 1 'password: x' -n 2")
    "get https://(hidden)@host/x?token=(hidden) --api-key (hidden) 'password: (hidden)' -n 2"
    """
    value = _USER.sub(rf"\g<scheme>{HIDDEN}@", value)
    value = _NAMED.sub(rf"\g<flag>\g<name>:{HIDDEN}", value)
    value = _SHORT.sub(f"-p{HIDDEN}", value)
    value = _KEYS.sub(HIDDEN, value)
    value = _PAIR.sub(lambda m: _hidden(m, m["name"] + m["is"]), value)
    return _FLAG.sub(lambda m: _hidden(m, m["flag"] + m["gap"]), value)


def words(command):
    """The words of a command, which may have spaces, without the secrets in them.

    >>> words(["train", "--token", "a b", "--password=c d", "--steps=3", "A_SECRET=x y"])
    ['train', '--token', '(hidden)', '--password=(hidden)', '--steps=3', 'A_SECRET=(hidden)']
    >>> words(["mysql", "-pabc", "-u", "me:abc"])
    ['mysql', '-p(hidden)', '-u', 'me:(hidden)']
    """
    found, hide, before = [], False, ""
    for word in command:
        name, equals, _ = word.partition("=")
        plain = re.fullmatch(r"-*[\w.\-]+", name)
        if hide and not word.startswith("--"):
            found.append(HIDDEN)
        elif plain and equals and is_secret(name):
            found.append(f"{name}={HIDDEN}")
        elif _NAMED.fullmatch(f"{before} {word}"):
            found.append(f"{word.partition(':')[0]}:{HIDDEN}")
        else:
            found.append(text(word))
        before = word
        asks = plain and not equals and word.startswith("-") and is_secret(name)
        hide = bool(asks and not _SHORT.match(word))
    return found


def variables(environ=os.environ):
    """The recorded variables of an environment.

    >>> variables({"OMP_NUM_THREADS": "2", "HOME": "/home/me", "TF_API_TOKEN": "x"})
    {'OMP_NUM_THREADS': '2'}
    """
    return {
        name: text(environ[name])
        for name in sorted(environ)
        if _matches(name, ALLOWED) and not _matches(name, LEFT_OUT) and not is_secret(name)
    }


def shared(found):
    """Of recorded variables those that repeats share."""
    return {name: value for name, value in found.items() if not _matches(name, OWN)}


def _matches(name, patterns):
    return _compiled(patterns).match(name) is not None


@functools.cache
def _compiled(patterns):
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _hidden(match, before):
    return before + HIDDEN if is_secret(match["name"]) else match[0]
