"""Transformers: blocks of attention, for tokens and for patches of images."""
