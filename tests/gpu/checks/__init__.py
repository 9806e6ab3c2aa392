"""Checks, by what they are about; importing this finds the files, which add theirs to CHECKS."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
