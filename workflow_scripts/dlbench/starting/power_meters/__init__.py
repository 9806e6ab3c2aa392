"""Power meters that `site.power_meter` may name instead of a command, one file each.

A file defines:
    open_meter(arguments, log, nodes): a meter of a run, opened before its trainer starts; the
        arguments are the words after its name in the config. It raises nothing, and has
            stop()    called once the trainer has ended
            fields()  the event `power_meter`: see power.Meter
"""
