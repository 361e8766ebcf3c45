"""LayerNorm and RMSNorm as objects with parameters, under torch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_device
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, one_line, shown
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms import functional
from webnorm.ops.norms.module import Module
from webnorm.ops.norms.problem import WEIGHT_OFFSET, NormOptions
from webnorm.ops.norms.resolved import A, Rounding, as_flag, as_rounding, dtype_name, leading_of, shape_of


@dataclass(frozen=True)
class _Saved:
    """The values that `backward` needs, on the device. `kept` is True if x was a GpuArray."""

    x: GpuArray
    stats: GpuArray
    kept: bool


class _Norm(Module):
    """The common base of both modules: parameters, gradients and state."""

    # The functions that a module makes its calls of.
    _function: Callable[..., Any]
    _gradient: Callable[..., tuple[Any, ...]]
    eps: float | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        zero_centered_weight: bool,
        weight_offset: float,
        rounding: Rounding,
        dtype: Any,
        device: Device | None,
        names: Sequence[str],
    ) -> None:
        self.normalized_shape = shape_of(normalized_shape)
        centred = as_flag("zero_centered_weight", zero_centered_weight)
        offset = WEIGHT_OFFSET.number(weight_offset)
        self.zero_centered_weight = centred and "weight" in names
        self.rounding = as_rounding("rounding", rounding)
        self.weight_offset = offset if "weight" in names else 0.0
        first = 1.0 - NormOptions(zero_centered_weight=centred, weight_offset=offset).offset
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
                value = first if name == "weight" else 0.0
                setattr(self, name, np.full(self.normalized_shape, value, self.dtype))
        except (MemoryError, ValueError) as error:
            wanted = shown(self.normalized_shape)
            raise WebnormError(f"normalized_shape is {wanted}: {one_line(str(error))}") from error

    def __call__(self, x: A) -> A:
        """Call `forward`."""
        return self.forward(x)

    def forward(self, x: A) -> A:
        """Normalize x.

        While training, x and the statistics of its rows stay on the device for `backward`. A GpuArray stays
        as it is; a NumPy array is copied to the device.

        Parameters
        ----------
        x : numpy.ndarray or GpuArray
            Array of shape `leading + normalized_shape`; float32, float16 or bfloat16.

        Returns
        -------
        numpy.ndarray or GpuArray
            y, of x's shape, dtype and type.

        Raises
        ------
        WebnormError
            For the same reasons as the function of the same name, such as `layer_norm`.
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
        """Return the gradient of the last forward pass's x, and set `weight_grad` and `bias_grad`.

        The values that the forward pass saved are released.

        Parameters
        ----------
        dy : numpy.ndarray or GpuArray
            Gradient of y, of x's shape and dtype.

        Returns
        -------
        numpy.ndarray or GpuArray
            dx, of x's shape and dtype; a GpuArray if x was one.

        Raises
        ------
        WebnormError
            There was no forward pass since the last `backward`, or dy does not have x's shape and dtype.
        """
        if self._saved is None:
            raise WebnormError(
                f"{type(self).__name__}.backward needs the values that forward saves; "
                "call forward before it, while training"
            )
        saved = self._saved
        dx: GpuArray
        given = {"stats": saved.stats, "bias_grad": self.bias is not None, **self._settings}
        dx, *gradients = self._gradient(dy, saved.x, self.normalized_shape, self.weight, **given)
        for name, gradient in zip(("weight", "bias"), gradients, strict=False):
            setattr(self, f"{name}_grad", None if gradient is None else gradient.numpy())
        self._saved = None
        return dx if saved.kept else dx.numpy()

    def _slot(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return self.normalized_shape, self.dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.normalized_shape}, eps={self.eps}, dtype={self.dtype})"

    def _norm(self, x: AnyArray, return_stats: bool = False) -> Any:
        given = {"bias": self.bias, "return_stats": return_stats, "rounding": self.rounding, **self._settings}
        return self._function(x, self.normalized_shape, self.weight, **given)

    @property
    def _settings(self) -> dict[str, Any]:
        offset = {name: getattr(self, name) for name in ("zero_centered_weight", "weight_offset")}
        return {"eps": self.eps, **offset, "device": self.device}


class LayerNorm(_Norm):
    """Layer normalization as a module: torch.nn.LayerNorm on WebGPU.

    See `webnorm.layer_norm` for the formula, the shapes and the dtypes. You may change or replace the
    parameters between calls; each call uploads them. Every `backward` overwrites the gradients, so add them
    up yourself if one step takes several passes.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing dimensions to normalize over, and the shape of the parameters.
    eps : float, default 1e-5
        Number added to the variance, 0 or more.
    elementwise_affine : bool, default True
        Create the parameters.
    bias : bool, default True
        Create the bias too. It has no effect without `elementwise_affine`.
    zero_centered_weight : bool, default False
        Multiply by 1 + weight; the weight then starts at 0.
    dtype : str, numpy.dtype or type, default "float32"
        Storage type of the parameters: float32, float16 or bfloat16.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the shared device.
    weight_offset : float, default 0.0
        Multiply by weight_offset + weight; the weight then starts at 1 - weight_offset.
    rounding : {"before_weight"}, optional
        Round the normalized x before the weight multiplies it. The gradients are the same.

    Attributes
    ----------
    weight : numpy.ndarray or None
        Initially 1, less its offset. None without `elementwise_affine`.
    bias : numpy.ndarray or None
        Initially 0. None without `elementwise_affine` or without `bias`.
    weight_grad : numpy.ndarray or None
        Gradient of the weight that the last `backward` computed.
    bias_grad : numpy.ndarray or None
        Gradient of the bias that the last `backward` computed.
    training : bool
        True if `forward` saves the values for `backward`. Initially True.

    Raises
    ------
    WebnormError
        normalized_shape, eps, dtype or device is invalid, or a flag is not a bool.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> norm = webnorm.LayerNorm(4)
    >>> y = norm(np.array([[1, 2, 3, 4]], np.float32))
    >>> dx = norm.backward(np.ones_like(y))
    >>> norm.bias_grad
    array([1., 1., 1., 1.], dtype=float32)
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
        *,
        weight_offset: float = 0.0,
        rounding: Rounding = None,
    ) -> None:
        affine = as_flag("elementwise_affine", elementwise_affine)
        names = ["weight"] * affine + ["bias"] * (as_flag("bias", bias) and affine)
        super().__init__(
            normalized_shape, zero_centered_weight, weight_offset, rounding, dtype, device, names
        )
        self.eps = EPS.number(eps)


class RMSNorm(_Norm):
    """RMS normalization as a module: torch.nn.RMSNorm on WebGPU.

    See `webnorm.rms_norm` for the formula, the shapes and the dtypes, and `LayerNorm` for the attributes. An
    RMSNorm has no bias.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing dimensions to normalize over, and the shape of the weight.
    eps : float, optional
        Number added to the mean of the squares, 0 or more. Default: float32's machine epsilon, 2**-23.
    elementwise_affine : bool, default True
        Create the weight.
    zero_centered_weight : bool, default False
        Multiply by 1 + weight; the weight then starts at 0.
    dtype : str, numpy.dtype or type, default "float32"
        Storage type of the weight: float32, float16 or bfloat16.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the shared device.
    weight_offset : float, default 0.0
        Multiply by weight_offset + weight; the weight then starts at 1 - weight_offset.
    rounding : {"before_weight"}, optional
        Round the normalized x before the weight multiplies it. The gradients are the same.

    Raises
    ------
    WebnormError
        normalized_shape, eps, dtype or device is invalid, or a flag is not a bool.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> norm = webnorm.RMSNorm(2).eval()
    >>> norm(np.array([[3, 4]], np.float32)).round(3)
    array([[0.849, 1.131]], dtype=float32)
    >>> list(norm.state_dict())
    ['weight']
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
        *,
        weight_offset: float = 0.0,
        rounding: Rounding = None,
    ) -> None:
        names = ["weight"] * as_flag("elementwise_affine", elementwise_affine)
        super().__init__(
            normalized_shape, zero_centered_weight, weight_offset, rounding, dtype, device, names
        )
        self.eps = None if eps is None else EPS.number(eps)
