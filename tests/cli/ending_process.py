"""A process that torchrun starts in the tests, in place of a training run: it ends as it is told.

Words: `train`, and `status=<number>`, `kill=<rank>` or `wait=<file>`, which is written at once.
"""

import os
import signal
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of Python
name, value = sys.argv[2].split("=")
if name == "status":
    sys.exit(int(value))
if name == "kill" and os.environ["RANK"] == value:
    os.kill(os.getpid(), signal.SIGKILL)
if name == "wait":
    open(f"{value}{os.environ['RANK']}", "w").close()
time.sleep(60)
