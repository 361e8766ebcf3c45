"""LayerNorm and RMSNorm as objects that hold their parameters, with torch's names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array, check_device, dtype_text
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, one_line, shown, unknown
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPE_NAMES, DTYPES, STORAGE, Array, read_back_from
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms import functional
from webnorm.ops.norms.resolved import A, as_flag, dtype_name, leading_of, shape_of


@dataclass(frozen=True)
class _Saved:
    """What backward needs of a forward pass, on the device. `kept` tells whether x was a GpuArray."""

    x: GpuArray
    stats: GpuArray
    kept: bool


class _Norm:
    """What both norms share: parameters, their gradients and their state.

    Parameters are NumPy arrays of `normalized_shape` and may be changed or set between calls; a call uploads
    them. Their gradients are NumPy arrays too, which every `backward` sets anew: add them up yourself where
    several passes make one step.
    """

    # The functions that a module makes its calls of.
    _function: Callable[..., Any]
    _gradient: Callable[..., tuple[Any, ...]]
    eps: float | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        zero_centered_weight: bool,
        dtype: Any,
        device: Device | None,
        names: Sequence[str],
    ) -> None:
        self.normalized_shape = shape_of(normalized_shape)
        centred = as_flag("zero_centered_weight", zero_centered_weight)
        self.zero_centered_weight = centred and "weight" in names
        self.dtype = DTYPES[dtype_name(dtype, known=STORAGE)]
        self.device = device
        self.training = True
        self.weight: Array | None = None
        self.bias: Array | None = None
        self.weight_grad: Array | None = None
        self.bias_grad: Array | None = None
        self._names = tuple(names)
        self._saved: _Saved | None = None
        check_device(device)
        try:
            for name in names:
                value = 1.0 if name == "weight" and not centred else 0.0
                setattr(self, name, np.full(self.normalized_shape, value, self.dtype))
        except (MemoryError, ValueError) as error:
            wanted = shown(self.normalized_shape)
            raise WebnormError(f"normalized_shape is {wanted}: {one_line(str(error))}") from error

    def __call__(self, x: A) -> A:
        """The same as `forward`."""
        return self.forward(x)

    def forward(self, x: A) -> A:
        """The norm of x: a GpuArray where x is one, else a NumPy array.

        While training, x and its rows' statistics stay on the device for `backward`: a GpuArray as it is, a
        NumPy array as a copy.

        Raises:
            WebnormError: as the function of that name does.
        """
        kept = isinstance(x, GpuArray)
        if not self.training:
            return cast("A", self._norm(x))
        leading_of(x, self.normalized_shape)
        here = x if isinstance(x, GpuArray) else GpuArray.from_numpy(x, self.device)
        found = self._norm(here, return_stats=True)
        self._saved = _Saved(here, found.stats, kept)
        return cast("A", found.y if kept else found.y.numpy())

    def backward(self, dy: AnyArray) -> AnyArray:
        """The gradient of the last forward pass's x, given that of y; sets `weight_grad` and `bias_grad`.

        What the forward pass saved is let go. The result is a GpuArray where x was one.

        Raises:
            WebnormError: no forward pass since the last backward, or dy not of x's shape and dtype.
        """
        if self._saved is None:
            raise WebnormError(
                f"{type(self).__name__}.backward needs what forward saved; "
                "expected a forward pass before it, while training"
            )
        saved = self._saved
        dx: GpuArray
        given = {"stats": saved.stats, "bias_grad": self.bias is not None, **self._settings}
        dx, *gradients = self._gradient(dy, saved.x, self.normalized_shape, self.weight, **given)
        for name, gradient in zip(("weight", "bias"), gradients, strict=False):
            setattr(self, f"{name}_grad", None if gradient is None else gradient.numpy())
        self._saved = None
        return dx if saved.kept else dx.numpy()

    def train(self, mode: bool = True) -> Self:
        """Save what backward needs in forward, or not; gives the module."""
        self.training = as_flag("mode", mode)
        if not self.training:
            self._saved = None
        return self

    def eval(self) -> Self:
        """The same as `train(False)`."""
        return self.train(False)

    def state_dict(self) -> dict[str, Array]:
        """Copies of the parameters under torch's names."""
        return {name: np.array(getattr(self, name)) for name in self._names}

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: what forward saved is left out, and the device is the default one afterwards."""
        here = {n: v.numpy() if isinstance(v, GpuArray) else v for n, v in vars(self).items()}
        return {**here, "device": None, "_saved": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A module with parameters of its own, on the same device; what forward saved is left out."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        beside = {"device": self.device, "_saved": None}
        own = {name: value for name, value in vars(self).items() if name not in beside}
        vars(made).update(copy.deepcopy(own, memo), **beside)
        return made

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take the parameters over, cast to the module's dtype.

        Raises:
            WebnormError: a key that is missing or unexpected, or a value that is no NumPy array of
                `normalized_shape`. The parameters are then as before.
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
            if value.shape != self.normalized_shape:
                raise WebnormError(f"{name} has shape {value.shape}; expected {self.normalized_shape}")
            if DTYPE_NAMES[self.dtype] in read_back_from(value.dtype):
                value = value.view(self.dtype)
            elif value.dtype.kind not in "biuf" and value.dtype not in DTYPE_NAMES:
                raise WebnormError(f"{name} has dtype {dtype_text(value.dtype)}; expected numbers")
            loaded[name] = value.astype(self.dtype)
        for name, value in loaded.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.normalized_shape}, eps={self.eps}, dtype={self.dtype})"

    def _norm(self, x: AnyArray, return_stats: bool = False) -> Any:
        given = {"bias": self.bias, "return_stats": return_stats, **self._settings}
        return self._function(x, self.normalized_shape, self.weight, **given)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"eps": self.eps, "zero_centered_weight": self.zero_centered_weight, "device": self.device}


class LayerNorm(_Norm):
    """torch.nn.LayerNorm on WebGPU; see `webnorm.layer_norm` for the formula, shapes and dtypes.

    Attributes:
        weight: 1 at first (0 where `zero_centered_weight`: y is scaled by 1 + weight); None without
            `elementwise_affine`.
        bias: 0 at first; None without `elementwise_affine` or `bias`.
        weight_grad: set by `backward`, NumPy; None before, and without weight.
        bias_grad: as `weight_grad`.
        training: whether forward saves what backward needs.

    Raises:
        WebnormError: a bad normalized_shape, eps, dtype or device, or a switch that is neither on nor off.
    """

    _function = staticmethod(functional.layer_norm)
    _gradient = staticmethod(functional.layer_norm_backward)
    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        zero_centered_weight: bool = False,
        dtype: Any = "float32",
        device: Device | None = None,
    ) -> None:
        affine = as_flag("elementwise_affine", elementwise_affine)
        names = ["weight"] * affine + ["bias"] * (as_flag("bias", bias) and affine)
        super().__init__(normalized_shape, zero_centered_weight, dtype, device, names)
        self.eps = EPS.number(eps)


class RMSNorm(_Norm):
    """torch.nn.RMSNorm on WebGPU; see `webnorm.rms_norm` for the formula, shapes and dtypes.

    eps None is float32's machine epsilon. Attributes and errors are those of `LayerNorm`, without
    bias.
    """

    _function = staticmethod(functional.rms_norm)
    _gradient = staticmethod(functional.rms_norm_backward)

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        zero_centered_weight: bool = False,
        dtype: Any = "float32",
        device: Device | None = None,
    ) -> None:
        names = ["weight"] * as_flag("elementwise_affine", elementwise_affine)
        super().__init__(normalized_shape, zero_centered_weight, dtype, device, names)
        self.eps = None if eps is None else EPS.number(eps)
