"""The state of a module: its parameters under torch's names, the training mode, copies and pickles."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array, dtype_text
from webnorm.errors import WebnormError, shown, unknown
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPE_NAMES, Array, read_back_from
from webnorm.ops.norms.resolved import as_flag


class Module:
    """The base of all modules. A subclass sets every attribute below, and the arrays of its `_names`.

    `_saved` holds the values that `forward` leaves for `backward`.
    """

    training: bool
    device: Device | None
    _names: tuple[str, ...]
    _saved: Any

    def _slot(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and dtype of the array of that name."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        """Set the training mode, in which `forward` saves the values for `backward`; return the module.

        Parameters
        ----------
        mode : bool, default True
            True to save the values.
        """
        self.training = as_flag("mode", mode)
        if not self.training:
            self._saved = None
        return self

    def eval(self) -> Self:
        """Call `train(False)`, and return the module."""
        return self.train(False)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters, under torch's names."""
        return {name: np.array(getattr(self, name)) for name in self._names}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: it has no device and nothing that `forward` saved."""
        here = {n: v.numpy() if isinstance(v, GpuArray) else v for n, v in vars(self).items()}
        return {**here, "device": None, "_saved": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a module with its own parameters on the same device; saved values are left out."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        shared = {"device": self.device, "_saved": None}
        own = {name: value for name, value in vars(self).items() if name not in shared}
        vars(made).update(copy.deepcopy(own, memo), **shared)
        return made

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Set the parameters, cast to the module's dtype.

        Parameters
        ----------
        state : mapping of str to numpy.ndarray
            Arrays of the parameters' shapes, under the names that `state_dict` returns.

        Raises
        ------
        WebnormError
            A name is missing or unexpected, or a value is not a NumPy array of the parameter's shape. The
            parameters are then unchanged.
        """
        if not isinstance(state, Mapping):
            raise WebnormError(f"state is {shown(state)}; expected a mapping, as from state_dict")
        for name in self._names:
            if name not in state:
                raise WebnormError(f"the state lacks {name!r}; expected {', '.join(self._names)}")
        loaded = {}
        for name, value in state.items():
            if not isinstance(name, str) or name not in self._names:
                raise unknown("key in the state", name, self._names)
            check_array(name, value, device_arrays=False)
            shape, dtype = self._slot(name)
            if value.shape != shape:
                raise WebnormError(f"{name} has shape {value.shape}; expected {shape}")
            if DTYPE_NAMES.get(dtype) in read_back_from(value.dtype):
                value = value.view(dtype)
            elif value.dtype.kind not in "biuf" and value.dtype not in DTYPE_NAMES:
                raise WebnormError(f"{name} has dtype {dtype_text(value.dtype)}; expected numbers")
            loaded[name] = value.astype(dtype)
        for name, value in loaded.items():
            setattr(self, name, value)
