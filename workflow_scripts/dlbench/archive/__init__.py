"""The archive of a study, one zip: written, verified, and its results made again from it.

Programs and rules/archive.smk use it (write_archive, verify_archive, archive_logs, rederive,
workflow_files); no other room imports it. It imports rooms below; what verifies needs the standard
library alone.
"""
