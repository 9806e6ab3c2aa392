"""What holds for all suites, however pytest was started."""

import signal

# A shell that starts us in the background has us ignore it, and so would all that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
