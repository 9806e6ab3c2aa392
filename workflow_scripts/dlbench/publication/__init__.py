"""Publication: a history as a data set, and a folder as a branch of a Git repository

data_set.py writes the folder; citations.py says whose campaigns it has, under which licences;
cards.py and history_crate.py make its metadata. git_branch.py commits a website. Nothing is sent
anywhere.
Imports history, archive and rooms below; command imports it.
"""
