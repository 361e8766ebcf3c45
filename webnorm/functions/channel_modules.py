"""GroupNorm and InstanceNorm as objects with parameters, under torch's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array, check_array_type, check_device
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, one_line, shown
from webnorm.functions.dimensions import channels_of
from webnorm.functions.gradients import group_norm_backward
from webnorm.functions.group_norms import group_norm, groups_of, instance_norm
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.module import Module
from webnorm.ops.norms.resolved import A, as_count, as_flag, dtype_name


@dataclass(frozen=True)
class _SavedInput:
    """The x of a forward pass, on the device with a batch dimension. `kept` is True if it was a GpuArray."""

    x: GpuArray
    shape: tuple[int, ...]
    kept: bool


class _ChannelNorm(Module):
    """The common base: parameters and running statistics with one element per channel."""

    eps: float

    def __init__(
        self, channels: int, eps: float, names: Sequence[str], dtype: Any, device: Device | None
    ) -> None:
        self.eps = EPS.number(eps)
        self.dtype = DTYPES[dtype_name(dtype, known=STORAGE)]
        self.device = device
        self.training = True
        self.weight: Array | None = None
        self.bias: Array | None = None
        self.weight_grad: Array | None = None
        self.bias_grad: Array | None = None
        self._names = tuple(names)
        self._saved = None
        self._channels = channels
        check_device(device)
        try:
            for name in names:
                shape, kind = self._slot(name)
                value = 1 if name in ("weight", "running_var") else 0
                setattr(self, name, np.full(shape, value, kind))
        except (MemoryError, ValueError) as error:
            raise WebnormError(f"{channels} channels: {one_line(str(error))}") from error

    def _slot(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        if name == "num_batches_tracked":
            return (), np.dtype(np.int64)
        return (self._channels,), self.dtype

    def __call__(self, x: A) -> A:
        """Call `forward`."""
        return self.forward(x)

    def forward(self, x: A) -> A:
        """Normalize x.

        While training, x stays on the device for `backward`. A NumPy array is copied to it.

        Parameters
        ----------
        x : numpy.ndarray or GpuArray
            Array with the channels and dimensions of the module; float32, float16 or bfloat16. It must be a
            NumPy array if the module tracks statistics.

        Returns
        -------
        numpy.ndarray or GpuArray
            y, of x's shape, dtype and type.

        Raises
        ------
        WebnormError
            For the same reasons as the function of the same name, such as `group_norm`.
        """
        batch: Any = self._checked(x)
        if not self.training:
            return cast("A", self._norm(batch).reshape(x.shape))
        here = batch if isinstance(x, GpuArray) else GpuArray.from_numpy(batch, self.device)
        y = self._norm(batch if self._needs_numpy else here)
        self._saved = _SavedInput(here, tuple(x.shape), isinstance(x, GpuArray))
        y = y if isinstance(y, np.ndarray) or self._saved.kept else y.numpy()
        return cast("A", y.reshape(x.shape))

    def backward(self, dy: AnyArray) -> AnyArray:
        """Return the gradient of the last forward pass's x, and set `weight_grad` and `bias_grad`.

        The x that the forward pass saved is released.

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
                f"{type(self).__name__}.backward needs the x that forward saves; "
                "call forward before it, while training"
            )
        saved: _SavedInput = self._saved
        check_array("dy", dy)
        if tuple(dy.shape) != saved.shape:
            raise WebnormError(f"dy has shape {tuple(dy.shape)}; expected x's {saved.shape}")
        dx, dweight, dbias = self._gradients(dy.reshape(saved.x.shape), saved.x)
        self.weight_grad, self.bias_grad = (
            None if one is None else np.asarray(one) for one in (dweight, dbias)
        )
        self._saved = None
        dx = dx.reshape(saved.shape)
        return dx if saved.kept else np.asarray(dx)

    @property
    def _needs_numpy(self) -> bool:
        """True if NumPy computes statistics of x."""
        return False

    def _checked(self, x: AnyArray) -> AnyArray:
        """Return x with a batch dimension; raise WebnormError if it has other channels or dimensions."""
        raise NotImplementedError

    def _norm(self, x: AnyArray) -> Any:
        raise NotImplementedError

    def _gradients(self, dy: AnyArray, x: GpuArray) -> tuple[Any, ...]:
        raise NotImplementedError


class GroupNorm(_ChannelNorm):
    """Group normalization as a module: torch.nn.GroupNorm on WebGPU.

    See `webnorm.group_norm` for the formula, the shapes and the dtypes. You may change or replace the
    parameters between calls; each call uploads them. Every `backward` overwrites the gradients.

    Parameters
    ----------
    num_groups : int
        Number of groups. It must divide num_channels.
    num_channels : int
        Number of channels, and of elements of the parameters.
    eps : float, default 1e-5
        Number added to the variance, 0 or more.
    affine : bool, default True
        Create the parameters.
    bias : bool, default True
        Create the bias too. It has no effect without `affine`.
    activation : str, optional
        "silu", "gelu" or "gelu_tanh", which torch lacks. Default: none.
    channels_last : bool, default False
        The channels are the last dimension instead of the second.
    dtype : str, numpy.dtype or type, default "float32"
        Storage type of the parameters: float32, float16 or bfloat16.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the shared device.

    Attributes
    ----------
    weight : numpy.ndarray or None
        Initially 1. None without `affine`.
    bias : numpy.ndarray or None
        Initially 0. None without `affine` or without `bias`.
    weight_grad, bias_grad : numpy.ndarray or None
        Gradients of the parameters that the last `backward` computed.
    training : bool
        True if `forward` saves x for `backward`. Initially True.

    Raises
    ------
    WebnormError
        num_groups does not divide num_channels, another argument is invalid, or a flag is not a bool.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> norm = webnorm.GroupNorm(1, 2)
    >>> norm(np.array([[[1, 2], [3, 4]]], np.float32)).round(3)
    array([[[-1.342, -0.447],
            [ 0.447,  1.342]]], dtype=float32)
    >>> list(norm.state_dict())
    ['weight', 'bias']
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        activation: str | None = None,
        channels_last: bool = False,
        dtype: Any = "float32",
        device: Device | None = None,
    ) -> None:
        self.num_channels = _count("num_channels", num_channels)
        self.num_groups = groups_of(num_groups, self.num_channels)
        self.affine = as_flag("affine", affine)
        self.activation = activation
        self.channels_last = as_flag("channels_last", channels_last)
        names = ["weight"] * self.affine + ["bias"] * (as_flag("bias", bias) and self.affine)
        super().__init__(self.num_channels, eps, names, dtype, device)

    def _checked(self, x: AnyArray) -> AnyArray:
        _check_channels(x, self.num_channels, self.channels_last)
        return x

    def _norm(self, x: AnyArray) -> Any:
        return group_norm(cast("Array", x), self.num_groups, self.weight, self.bias, **self._settings)

    def _gradients(self, dy: AnyArray, x: GpuArray) -> tuple[Any, ...]:
        return group_norm_backward(
            cast("Array", dy), x, self.num_groups, self.weight, self.bias, **self._settings
        )

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("eps", "activation", "channels_last", "device")}

    def __repr__(self) -> str:
        return f"GroupNorm({self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine})"


class _InstanceNorm(_ChannelNorm):
    """The common base of InstanceNorm1d, 2d and 3d, which differ in the number of dimensions."""

    # Of an x without a batch dimension.
    _dimensions: ClassVar[int]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        bias: bool = True,
        dtype: Any = "float32",
        device: Device | None = None,
    ) -> None:
        self.num_features = _count("num_features", num_features)
        self.momentum = momentum
        self.affine = as_flag("affine", affine)
        self.track_running_stats = as_flag("track_running_stats", track_running_stats)
        self.running_mean: Array | None = None
        self.running_var: Array | None = None
        names = ["weight"] * self.affine + ["bias"] * (as_flag("bias", bias) and self.affine)
        names += ["running_mean", "running_var", "num_batches_tracked"] * self.track_running_stats
        super().__init__(self.num_features, eps, names, dtype, device)

    @property
    def _needs_numpy(self) -> bool:
        return self.track_running_stats

    def _checked(self, x: AnyArray) -> AnyArray:
        check_array_type("x", x, known=STORAGE)
        count = self._dimensions
        if x.ndim not in (count, count + 1):
            raise WebnormError(f"x has shape {tuple(x.shape)}; expected {count} or {count + 1} dimensions")
        batch = x.reshape((1, *x.shape)) if x.ndim == count else x
        _check_channels(batch, self.num_features)
        return batch

    def _norm(self, x: AnyArray) -> Any:
        return instance_norm(
            cast("Array", x),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum,
            self.eps,
            device=self.device,
        )

    def _gradients(self, dy: AnyArray, x: GpuArray) -> tuple[Any, ...]:
        given = {"eps": self.eps, "device": self.device}
        return group_norm_backward(
            cast("Array", dy), x, self.num_features, self.weight, self.bias, **cast("Any", given)
        )

    def __repr__(self) -> str:
        given = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{type(self).__name__}({given}, track_running_stats={self.track_running_stats})"


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (N, C, L) or (C, L) as a module: torch.nn.InstanceNorm1d on WebGPU.

    See `webnorm.instance_norm` for the formula and the dtypes, also for running statistics. As in torch, a
    module that tracks statistics uses them after `eval`.

    Parameters
    ----------
    num_features : int
        Number of channels C.
    eps : float, default 1e-5
        Number added to the variance, 0 or more.
    momentum : float, default 0.1
        Share of x's statistics in the new running statistics.
    affine : bool, default False
        Create the parameters `weight` and `bias`.
    track_running_stats : bool, default False
        Create `running_mean` and `running_var`, and update them in every training pass.
    bias : bool, default True
        Create the bias too. It has no effect without `affine`.
    dtype : str, numpy.dtype or type, default "float32"
        Storage type of the parameters and running statistics: float32, float16 or bfloat16.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the shared device.

    Attributes
    ----------
    weight, bias : numpy.ndarray or None
        Initially 1 and 0. None without `affine`.
    running_mean, running_var : numpy.ndarray or None
        Initially 0 and 1. None without `track_running_stats`.

    Raises
    ------
    WebnormError
        An argument is invalid, or a flag is not a bool.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> norm = webnorm.InstanceNorm1d(2)
    >>> norm(np.array([[1, 3], [10, 30]], np.float32)).round(3)
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    _dimensions = 2


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (N, C, H, W) or (C, H, W): torch.nn.InstanceNorm2d on WebGPU.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats, bias, dtype, device
        As for `InstanceNorm1d`.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.InstanceNorm2d(1)(np.array([[[1, 3]]], np.float32)).round(3)
    array([[[-1.,  1.]]], dtype=float32)
    """

    _dimensions = 3


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of (N, C, D, H, W) or (C, D, H, W): torch.nn.InstanceNorm3d on WebGPU.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats, bias, dtype, device
        As for `InstanceNorm1d`.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.InstanceNorm3d(1)(np.array([[[[1, 3]]]], np.float32)).round(3)
    array([[[[-1.,  1.]]]], dtype=float32)
    """

    _dimensions = 4


def _count(name: str, value: int) -> int:
    count = as_count(name, value)
    # as_count returns its largest number for larger ones.
    if not count or count != value:
        raise WebnormError(f"{name} is {shown(value)}; expected 1 to 2^31 - 1")
    return count


def _check_channels(x: AnyArray, channels: int, channels_last: bool = False) -> None:
    found, _ = channels_of(x, channels_last)
    if found != channels:
        raise WebnormError(f"x has shape {tuple(x.shape)}; expected {channels} channels, not {found}")
