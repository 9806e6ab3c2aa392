"""The public validators of BagIt and RO-Crate, in their own environment, without a network.

    uv run --project envs/archive python tests/support/archives/archive_validators.py FOLDER

FOLDER is an unpacked archive, or the folder of a crate. Prints what each validator found and ends
with 1 where one is not content. What the RO-Crate validator fetches otherwise lies in
tests/data/contexts; it is put into its cache, and it may use nothing else.

The validator has rules of RO-Crate 1.3, and of Workflow Run Crates those of 0.5 only. From 0.5 to
0.6 the addresses of RENAMED changed and no rule did, so a copy under the addresses of 0.5 is held
against them.
"""

import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

import bagit
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from urllib3 import HTTPResponse

CONTEXTS = Path(__file__).parents[2] / "data" / "contexts"
METADATA = "ro-crate-metadata.json"
CRATE, RUN_TERMS = "https://w3id.org/ro/crate/", "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = "https://w3id.org/ro/wfrun/"
RENAMED = {
    f"{CRATE}1.3": f"{CRATE}1.1",
    **{f"{PROFILES}{name}/0.6": f"{PROFILES}{name}/0.5" for name in ("process", "workflow")},
    "https://w3id.org/workflowhub/workflow-ro-crate/1.1": (
        "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
    ),
}
# What 1.3 maps to other addresses than 1.1, of the terms that dlbench uses.
BIOSCHEMAS = ("ComputationalWorkflow", "FormalParameter", "input", "output")
PROFILE = {"Profile": "http://www.w3.org/ns/dx/prof/Profile"}


class Contexts(HTTPAdapter):
    """Answers requests with our copies."""

    def send(self, request, **_):
        content, kind = contexts()[request.url], {"Content-Type": "application/ld+json"}
        options = {"status": 200, "preload_content": False, "request_url": request.url}
        response = HTTPResponse(io.BytesIO(content), kind, **options)
        return self.build_response(request, response)


def contexts():
    """{address: content} of the contexts of JSON-LD; that of 1.3 is made from that of 1.1."""
    earlier = (CONTEXTS / "ro-crate-1.1.jsonld").read_bytes()
    terms = json.loads(earlier)["@context"]
    terms |= {name: f"https://bioschemas.org/terms/{name}" for name in BIOSCHEMAS} | PROFILE
    return {
        f"{CRATE}1.1/context": earlier,
        f"{CRATE}1.3/context": json.dumps({"@context": terms}).encode(),
        RUN_TERMS: (CONTEXTS / "workflow-run.jsonld").read_bytes(),
    }


def main(folder):
    crate = folder / "data" if (folder / "bagit.txt").exists() else folder
    if crate != folder:
        bagit.Bag(str(folder)).validate()  # raises where it is not valid
        print(f"bagit {bagit.VERSION}: valid")
    text = (crate / METADATA).read_text()
    kind = "workflow" if f"{PROFILES}workflow/" in text else "process"
    with tempfile.TemporaryDirectory() as place:
        cache, renamed = Path(place, "cache"), Path(place, "renamed")
        with CachedSession(str(cache), backend="sqlite") as session:
            session.mount("https://", Contexts())
            for address in contexts():
                session.get(address)
        shutil.copytree(crate, renamed)
        for new, old in RENAMED.items():
            text = text.replace(new, old)
        (renamed / METADATA).write_text(text)
        # The second takes half a minute: it is not needed where the first says no.
        return valid(renamed, f"{kind}-run-crate", cache) and valid(crate, "ro-crate-1.3", cache)


def valid(crate, profile, cache):
    """Whether a crate keeps all that a profile requires; prints what it does not keep."""
    what = {"rocrate_uri": crate, "profile_identifier": profile, "cache_path": cache}
    required = Severity.REQUIRED
    settings = ValidationSettings(requirement_severity=required, offline=True, **what)
    result = services.validate(settings)
    for issue in result.get_issues():
        print(f"{issue.severity.name}: {issue.check.identifier}: {issue.message}")
    checked = len(result.executed_checks)
    print(f"RO-Crate, {profile}: {checked} checks, {'passed' if result.passed() else 'failed'}")
    return result.passed()


if __name__ == "__main__":
    sys.exit(not main(Path(sys.argv[1])))
