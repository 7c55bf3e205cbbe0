"""alone.py: what scripts that run by themselves have in common: torch and a GPU, or 77 and why not, and their options.

It is imported ahead of all that needs torch.
"""

import argparse
import sys

import results

NOT_HERE = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(NOT_HERE)


try:
    import torch
except (ImportError, OSError) as missing:  # OSError: a library that torch needs
    skip(f"torch cannot be imported here ({str(missing).partition(chr(10))[0]})")


def parser(doc):
    """With the options of all of them; a script adds its own."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--library", default="build/liblathe.so")
    made.add_argument("--cache", help="folder of compiled kernels")
    made.add_argument("--quick", action="store_true", help="fewer bursts")
    results.add_option(made)
    return made


def need_gpu():
    if not torch.cuda.is_available():
        skip("no GPU")
