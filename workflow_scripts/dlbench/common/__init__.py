"""What every room may use: files, options, things found by their name, programs of the machine.

All its files may be imported from every room. It imports the standard library and dlbench.Error
only, for its files may enter every image.
"""
