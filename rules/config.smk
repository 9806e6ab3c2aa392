"""See that the files of the config can be read, before Snakemake reads them.

Snakemake names neither file nor line of what is no YAML, and of a key that is twice in a mapping
takes the last one without a word. A file given with --configfile has been read by then: what is
twice in it is found here, what is no YAML in it was named by Snakemake.
"""

import sys

sys.path.insert(0, f"{workflow.basedir}/workflow_scripts")

from pathlib import Path

from dlbench import Error
from dlbench.study import config as study_config

try:
    study_config.read(
        *(
            path
            for path in ("config.yaml", "site.yaml", *workflow.overwrite_configfiles)
            if Path(path).exists()
        )
    )
except Error as error:
    sys.exit(f"The config cannot be used:\n{error}")
