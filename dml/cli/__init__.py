"""The program `dml`, one module for each of its commands; `train.py` is `dml train`."""
