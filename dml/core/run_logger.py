"""The logger of `train.log`; its messages are not printed.

`dml.runs.folder.run_log` opens the file; without it, messages are dropped.
"""

from __future__ import annotations

import logging

run_logger = logging.getLogger("dml.train_log")
run_logger.setLevel(logging.INFO)
run_logger.propagate = False  # Hydra prints what reaches the root logger
