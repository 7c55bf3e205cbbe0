"""FLA's registry of backends in small, for machines without FLA: names, signatures and order of events are those of
`fla/backends.py` of flash-linear-attention 0.6; nothing else of it is here."""

import os
import sys
import types


class BaseBackend:
    backend_type = "base"
    package_name = None
    env_var = None
    default_enable = True
    priority = 5
    implementation = None
    verifier = None

    def get_implementation(self, function_name):
        return self.implementation or getattr(self, function_name, None)

    @classmethod
    def is_available(cls):
        return True

    def is_enabled(self):
        return os.environ.get(self.env_var, "1" if self.default_enable else "0") != "0"

    def verify(self, function_name, *args, **kwargs):
        verifier = self.verifier or getattr(self, f"{function_name}_verifier", None)
        return (True, None) if verifier is None else verifier(*args, **kwargs)


class BackendRegistry:
    def __init__(self, operation_name):
        self.operation_name = operation_name
        self._backends = {}

    def register(self, backend):
        self._backends[backend.backend_type] = backend

    def dispatch(self, default_function):
        name = default_function.__name__

        def wrapper(*args, **kwargs):
            for backend in sorted(self._backends.values(), key=lambda b: b.priority):
                if not (backend.is_available() and backend.is_enabled()):
                    continue
                if not backend.verify(name, *args, **kwargs)[0] or backend.get_implementation(name) is None:
                    continue
                return backend.get_implementation(name)(*args, **kwargs)
            return default_function(*args, **kwargs)

        return wrapper


_operations: dict = {}
_functions: dict = {}


def _get_operation_registry(operation):
    return _operations.setdefault(operation, BackendRegistry(operation))


def register(entry_point):
    def decorate(backend):
        of = _get_operation_registry(entry_point) if isinstance(entry_point, str) else _functions[entry_point]
        of.register(backend())
        return backend

    return decorate


def dispatch(entry_point):
    if isinstance(entry_point, str):
        return _get_operation_registry(entry_point).dispatch
    registry = BackendRegistry(entry_point.__module__)
    wrapper = registry.dispatch(entry_point)
    _functions[wrapper] = registry
    return wrapper


def _own(name):
    def function(*args, **kwargs):
        return "FLA's own", name

    function.__name__ = name
    return function


def install(monkeypatch):
    """As the package `fla`, with the entry points that ours knows."""
    _operations.clear()
    _functions.clear()
    ops = {"gated_delta_rule": ("chunk_gated_delta_rule",), "simple_gla": ("fused_recurrent_simple_gla",),
           "kda": ("chunk_kda", "fused_recurrent_kda_fwd")}  # fmt: skip
    of_operation = {"chunk_gated_delta_rule": "gated_delta_rule", "fused_recurrent_kda_fwd": "kda"}
    package = types.ModuleType("fla")
    package.backends = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "fla", package)
    monkeypatch.setitem(sys.modules, "fla.backends", package.backends)
    for place, names in ops.items():
        module = types.ModuleType(f"fla.ops.{place}")
        for name in names:
            own = _own(name)
            setattr(module, name, dispatch(of_operation[name])(own) if name in of_operation else dispatch(own))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return package
