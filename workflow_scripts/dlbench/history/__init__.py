"""The history of a machine: campaigns of many sessions, and what changed between them, when, why"""
