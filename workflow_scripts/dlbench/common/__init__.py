"""What every room may use: files, options, things found by their name, words.

Standard library only: its files may enter every image.
"""
