"""Logs read by patterns: regular expressions of a config or of a file.

dlbench/study/log_patterns.py parses them.
"""
