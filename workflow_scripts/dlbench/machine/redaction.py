"""Commands and the environment as they are recorded: without secrets.

- Variables are recorded by an allow-list of those that change the speed of training; those of a
  framework are listed in its `engine.py` (trainer/engine.py).
- Never recorded, also inside values and commands: a value whose name says that it is a secret,
  the user in a URL, and keys of well-known services.
- In a command of the config a secret is replaced by a number; the secret itself is passed in an
  environment variable, so that it is in no command line.
"""

import fnmatch
import functools
import json
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from dlbench import Error

HIDDEN = "(hidden)"
VARIABLE = "DLBENCH_SECRETS"  # the secrets of the numbers, a JSON list
Hide = Callable[[str], str]
ALLOWED = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "DNNL_*", "ONEDNN_*", "GLOO_*"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "NVSHMEM_*"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HOROVOD_*", "OMPI_MCA_*", "PMIX_MCA_*"),
    *("MPICH_*", "I_MPI_*", "UCX_*", "FI_*", "PSM2_*", "MALLOC_*", "TCMALLOC_*"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "DLBENCH_COPY"),
)
# Addresses of the processes of one run, and Open MPI's key of a job.
EXCLUDED = ("HOROVOD_GLOO_RENDEZVOUS_*", "OMPI_MCA_orte_*", "NCCL_DEBUG_FILE")
# Different in each process: they are recorded but not compared between repeats.
PER_PROCESS = (
    *("*_VISIBLE_DEVICES", "HOROVOD_*RANK", "HOROVOD_*SIZE", "HOROVOD_HOSTNAME", "DLBENCH_COPY"),
    *("OMPI_MCA_*ess_*", "OMPI_MCA_pmix*", "OMPI_MCA_*uri", "OMPI_MCA_initial_wdir"),
    *("OMPI_MCA_*jobid", "OMPI_MCA_*vpid", "PMIX_MCA_*"),
)
_WORDS = (
    r"token(?!i[sz]|[_-]dispatch)|passw|passphrase|passwd|pwd|secret|credential|(?<![a-z])creds(?![a-z])|"
    r"(?-i:(?<=[a-z])Creds(?![a-z]))|auth|cookie|signature|bearer|"
    r"(?:^|(?<=[^a-z])|api|access|private|ssh|license)keys?(?![a-z])|(?-i:(?<=[a-z])Keys?(?![a-z]))"
)
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
# Names and what stands between them and their values, then the values, which are looked at behind
# names of secrets alone: what is behind others is searched, too. The look-behind starts a match
# once in a long word only, so that time stays linear.
_NAMED_VALUES = (
    (
        re.compile(r"(?<![\w.\-])(?P<name>[\w.\-]+)(?:\\*[\"'])?\s*(?:=|:(?!//))\s*"),
        re.compile(
            r"(?P<quote>\\*[\"'])(?:(?!(?P=quote))[\s\S])*(?P=quote)"
            r"|(?:(?:bearer|basic|digest|token)\s+)?\\*[\"']?[^\s\"'\\,;&]+",
            re.IGNORECASE,
        ),
    ),
    (re.compile(r"(?<!\S)--?(?P<name>[\w.\-]+)\s+"), re.compile(r"(?!-)\S+")),
    # The same as items of a list, as JSON, Python and YAML write it.
    (
        re.compile(r"(?<![\w.\-])--?(?P<name>[\w.\-]+)\\*[\"']?[ \t]*(?:,\s*|\r?\n[ \t]*-[ \t]+)"),
        re.compile(
            r"(?!\\*[\"']?-)(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote)).)+(?P=quote)|[^\s\"',\[\]]+)"
        ),
    ),
)
_USER = re.compile(
    r"(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*:(?:\\?/){2}(?P<value>[^/\\\s]*)@",
    re.IGNORECASE,
)
_TAKE_PASSWORDS = ("ipmi", "mysql", "mariadb", "sshpass")  # how names of such programs begin
# A password right after its letter.
_SHORT = re.compile(
    r"\b(?:mysql|mariadb|sshpass)[\w\-]*\b[^\n]{0,500}?\s-p(?P<value>(?!\(hidden)\S+)"
)
# Name and password, of curl, wget and others; two numbers are a user and a group.
_NAMED = re.compile(
    r"(?<![^\s\"'])(?:-u|--(?:proxy-)?user)(?:\s+|=)[\"']?[^\s:\"']+:"
    r"(?P<value>(?!\d+(?!\S))[^\s\"']+)"
)
# Programs that read a power meter over the network; a number is a port.
_IPMI = re.compile(r"\bipmi[\w\-]*\b[^\n]{0,500}?\s-[Pp]\s+(?P<value>(?!\d+(?!\S))[^\s\-]\S*)")
# GitHub, GitLab, Hugging Face, Slack, OpenAI and Anthropic, AWS, Google, npm, PyPI, Stripe, NVIDIA,
# JSON web tokens; bearers of any; private keys in PEM, also without an end.
_KEYS = re.compile(
    r"(?<![\w\-.])(?P<value>gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|hf_[A-Za-z0-9]{20,}|"
    r"xox[abprs]-[\w\-]{10,}|sk-(?=[\w\-]*\d)[\w\-]{20,}|A[KS]IA[A-Z0-9]{16}|AIza[\w\-]{30,}|"
    r"ya29\.[\w\-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w\-]{40,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|"
    r"nvapi-[\w\-]{20,}|eyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*)"
)
_BEARER = re.compile(r"\bbearer\s+(?P<value>(?=\S*\d)[\w\-.~+/=]{8,})", re.IGNORECASE)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----(?P<value>[\s\S]+?)(?=-----END|\Z)"
)
# As programs print them, and as JSON, Python and shells write them.
_COLOURS = re.compile(r"(?:\x1b|\\(?:u001b|x1b|033|e))\[[\d;]*[A-Za-z]", re.IGNORECASE)
# What replaces a secret, before brackets of what it stands in.
_REPLACED = re.compile(r"\\*[\"']?\(hidden(?:-\d+)?\)[\\\"'}\])]*")
# Of a command of the config, for a value of the run; its closing brace may be stripped.
_FIELD = re.compile(r"\{[a-z_]+\}?")


class Variables(NamedTuple):
    """Patterns of names of variables, as of a shell: those that change the speed of training are
    recorded, and of these some are left out.
    """

    recorded: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


NO_MORE = Variables()


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret.

    >>> [is_secret(n) for n in ("WANDB_API_KEY", "--db-password", "accessKey", "apikey", "KEY")]
    [True, True, True, True, True]
    >>> [is_secret(n) for n in ("TF_CPP_MIN_LOG_LEVEL", "monkey", "keyboard", "tokenizer")]
    [False, False, False, False]
    >>> is_secret("--moe-token-dispatcher-type")
    False
    """
    return bool(_SECRET_NAME.search(name))


def hidden(secret: str) -> str:
    """The text that replaces a secret in records."""
    return HIDDEN


def redact(text: str, hide: Hide = hidden) -> str:
    """A text with the secrets in it hidden, and without colours; without more it stays as it is.

    `hide`: returns the replacement of a secret.

    >>> redact("get https://me:pw@host/x?token=abc --api-key 1 'password: x' -n 2")
    "get https://(hidden)@host/x?token=(hidden) --api-key (hidden) 'password: (hidden)' -n 2"
    >>> redact("--max-tokens=4096 tokens: 1e6")
    '--max-tokens=4096 tokens: 1e6'
    """
    return _redacted(text, hide, _COLOURS)


def _redacted(text, hide, *left_out):
    def replaced(match):
        if _REPLACED.fullmatch(match["value"]):
            return match[0]
        start, end = (place - match.start() for place in match.span("value"))
        return match[0][:start] + hide(match["value"]) + match[0][end:]

    before = None
    while text != before:  # what replaces a secret may end another's value earlier
        before = text
        for pattern in left_out:
            text = pattern.sub("", text)
        for pattern in (_PEM, _USER, _NAMED, _IPMI, _SHORT, _KEYS, _BEARER):
            text = pattern.sub(replaced, text)
        for names, values in _NAMED_VALUES:
            text = _without_values(text, names, values, hide)
    return text


def _without_values(text, names, values, hide):
    """A text in which the values are hidden that stand behind names of secrets."""
    parts, end = [], 0
    for match in names.finditer(text):
        name = match["name"]
        found = match.start() >= end and is_secret(name) and values.match(text, match.end())
        if found and not (_is_plain(name, found[0]) or _REPLACED.fullmatch(found[0])):
            parts += text[end : match.end()], hide(found[0])
            end = found.end()
    return "".join(parts) + text[end:]


def has_key(text: str) -> bool:
    """Whether a text has a key of a well-known service in it, a private key or a user in a URL."""
    return any(pattern.search(text) for pattern in (_KEYS, _USER, _PEM))


def redact_command(command: Iterable[str], hide: Hide = hidden) -> list[str]:
    """The arguments of a command, which may contain spaces, with the secrets in them hidden.

    >>> redact_command(["train", "--token", "a b", "--password=c d", "--steps=3", "A_SECRET=x y"])
    ['train', '--token', '(hidden)', '--password=(hidden)', '--steps=3', 'A_SECRET=(hidden)']
    >>> redact_command(["mysql", "-pabc", "-u", "me:abc"])
    ['mysql', '-p(hidden)', '-u', 'me:(hidden)']
    """
    arguments, earlier = [*command], None
    while arguments != earlier:  # as in a text
        arguments, earlier = _redacted_once(arguments, hide), arguments
    return arguments


def _redacted_once(command, hide):
    redacted: list[str] = []
    hide_next, before, program = False, "", ""
    for argument in command:
        name, equals, value = argument.partition("=")
        plain = re.fullmatch(r"-*[\w.\-]+", name)
        if hide_next and not argument.startswith("--") and not _is_plain(before, argument):
            redacted.append(hide(argument))
        elif plain and equals and is_secret(name):
            redacted.append(argument if _is_plain(name, value) else f"{name}={hide(value)}")
        elif named := _NAMED.fullmatch(f"{before} {argument}"):
            redacted.append(f"{argument.partition(':')[0]}:{hide(named['value'])}")
        elif _IPMI.fullmatch(f"{program} {before} {argument}"):
            redacted.append(hide(argument))
        elif _SHORT.match(f"{program} {argument}"):
            redacted.append(f"-p{hide(argument[2:])}")
        else:
            redacted.append(_redacted(argument, hide))
        before = argument
        if (base := os.path.basename(argument)).startswith(_TAKE_PASSWORDS):
            program = base
        secret_flag = plain and not equals and argument.startswith("-") and is_secret(name)
        hide_next = bool(secret_flag and redacted[-1] == argument)
    return redacted


def redact_settings(settings: Any, hide: Hide = hidden) -> Any:
    """Settings, as they are read from YAML, with the secrets in their texts and commands hidden.

    >>> redact_settings({"site": {"power_meter": "ipmitool -P pw"}, "command": ["a", "--key", "b"]})
    {'site': {'power_meter': 'ipmitool -P (hidden)'}, 'command': ['a', '--key', '(hidden)']}
    """
    if isinstance(settings, str):
        return redact(settings, hide)
    if isinstance(settings, dict):
        return {key: redact_settings(value, hide) for key, value in settings.items()}
    if isinstance(settings, list):
        if all(isinstance(word, str) for word in settings):
            return redact_command(settings, hide)
        return [redact_settings(value, hide) for value in settings]
    return settings


class Secrets:
    """Secrets that were removed from commands, each with a number.

    >>> secrets = Secrets()
    >>> command = secrets.take_out_of_template(["train", "--token=abc-{model}"])
    >>> command
    ['train', '--token=(hidden-0){model}']
    >>> restored([text.format(model="vgg") for text in command], secrets.variables)
    ['train', '--token=abc-vgg']
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def take_out(self, text: str) -> str:
        """A text with numbers for its secrets."""
        return _redacted(text, self._number)

    def take_out_of_template(self, command: Iterable[str]) -> list[str]:
        """The arguments of a command with numbers for its secrets; names in braces stay."""
        return redact_command(command, self._number_around_names)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that passes the secrets on; {} without secrets."""
        return {VARIABLE: json.dumps([*self._numbers])} if self._numbers else {}

    def _number(self, secret):
        if _REPLACED.fullmatch(secret):
            return secret
        return f"(hidden-{self._numbers.setdefault(secret, len(self._numbers))})"

    def _number_around_names(self, secret):
        parts = string.Formatter().parse(secret)
        return "".join(
            (self._number(text) if text else "") + ("" if name is None else f"{{{name}}}")
            for text, name, _, _ in parts
        )


def restored(command: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """A command with its secrets instead of their numbers.

    `environ`: has the variable of `Secrets.variables`. Raises Error: the variable is missing.
    """
    secrets = json.loads(environ.get(VARIABLE, "[]"))

    def restore(text, most):
        def secret(match):
            number = int(match[1])
            if number >= most:
                raise Error(
                    f"{match[0]} stands for a secret of the config, which the variable {VARIABLE} "
                    "should have: does something between Snakemake and this program (a wrapper, "
                    "APPTAINER_CLEANENV) clear the environment?"
                )
            return restore(secrets[number], number)  # one may stand in a later one

        return re.sub(r"\(hidden-(\d{1,6})\)", secret, text)

    return [restore(word, len(secrets)) for word in command]


def recorded_variables(
    environ: Mapping[str, str] = os.environ, more: Variables = NO_MORE
) -> dict[str, str]:
    """The variables of an environment that are recorded.

    >>> recorded_variables({"OMP_NUM_THREADS": "2", "HOME": "/home/me", "TF_API_TOKEN": "x"})
    {'OMP_NUM_THREADS': '2'}
    """
    return {
        name: redact(environ[name])
        for name in sorted(environ)
        if _matches(name, (*ALLOWED, *more.recorded))
        and not _matches(name, (*EXCLUDED, *more.left_out))
        and not is_secret(name)
    }


NO_NAMES = {"root", "home", "users"}  # of a user, where a home folder ends so


def without_user(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """Paths without names of users: those of home folders, and the user's own anywhere.

    >>> without_user("/home/me/eb:/scratch/me/spack:/apps/me2", {"USER": "me"})
    '/home/(user)/eb:/scratch/(user)/spack:/apps/me2'
    >>> without_user("/home/me/eb", {"HOME": "/tmp/home"})
    '/home/(user)/eb'
    """
    path = redact(path)
    if home := environ.get("HOME", "").rstrip("/"):
        path = re.sub(rf"(?<![^:]){re.escape(home)}(?![^/:])", "~", path)
    own = {environ.get("USER"), environ.get("LOGNAME"), os.path.basename(home)} - NO_NAMES
    names = "|".join(["(?<=/home/|users/)[^/:]+", *map(re.escape, filter(None, own))])
    return re.sub(rf"(?<=/)(?:{names})(?![^/:])", "(user)", path)


def shared_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The recorded variables that repeats should share."""
    return {name: value for name, value in variables.items() if not _matches(name, PER_PROCESS)}


def _matches(name, patterns):
    return _compiled(patterns).match(name) is not None


@functools.cache
def _compiled(patterns):
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _is_plain(name, value):
    """Whether a value is no secret though its name is: a field of a run, or a number of tokens."""
    value = value.strip("\\\"'}])")
    number = re.fullmatch(r"-?[\d_]*\.?\d+(?:e[+-]?\d+)?[kmgtb]?", value, re.IGNORECASE)
    return bool(_FIELD.fullmatch(value) or (number and "token" in name.lower()))
