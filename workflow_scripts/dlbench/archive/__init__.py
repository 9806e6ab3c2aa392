"""The archive of a study, one zip file: write it, verify it, and derive its results again.

Programs and rules/archive.smk use this room (write_archive, verify_archive, rederive); no
other room imports it. The modules that verify an archive need the standard
library only.
"""
