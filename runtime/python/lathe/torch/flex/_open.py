"""Numbers of Python that a mod reads and a trace leaves open: they become scalars of the spec, so that a number which
changes from call to call compiles nothing.
"""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

try:
    from torch.utils._sympy.printers import PythonPrinter
except ImportError:  # of a torch before 2.6
    from sympy.printing.str import StrPrinter as PythonPrinter

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
DECIDES = GuardOnDataDependentSymNode  # what an `if` of such a number raises


class Numbers:
    """Symbols of torch's own kind, which types and operations take for numbers of Python."""

    def __init__(self):
        self.env = ShapeEnv()
        self.slots: dict = {}  # of symbols: where their values are found in a call

    def new(self, is_int: bool, slot):
        made = self.env.create_unbacked_symint() if is_int else self.env.create_unbacked_symfloat()
        self.slots[made.node.expr] = slot
        return made

    def formula(self, number):
        """A function of the numbers of a call, by their slots, that gives this one."""
        expr = number.node.expr
        if expr in self.slots:
            slot = self.slots[expr]
            return lambda of: of(slot)
        symbols = sorted(expr.free_symbols, key=str)
        slots = [self.slots[s] for s in symbols]
        text = f"lambda {', '.join(map(str, symbols))}: {PythonPrinter().doprint(expr)}"
        run = eval(text, {"math": __import__("math"), "torch": torch, "float": torch.sym_float})  # noqa: S307
        return lambda of: run(*map(of, slots))

    def name_of(self, number, names) -> str:
        """What the slots are called: of a formula, the first of them."""
        symbols = sorted(number.node.expr.free_symbols, key=str)
        return names(self.slots[symbols[0]]) if symbols else "number"
