"""The archive of a study, one zip file: write it, verify it, and derive its results again.

Other rooms import write_archive, verify_archive and rederive. What verifies an archive needs the
standard library only.
"""
