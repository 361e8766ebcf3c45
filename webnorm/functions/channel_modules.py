"""GroupNorm and InstanceNorm as objects with parameters, under torch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np

from webnorm.calls.arrays import check_array_type, check_device
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, one_line, shown
from webnorm.functions.dimensions import channels_of
from webnorm.functions.group_norms import group_norm, groups_of, instance_norm
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.module import Module
from webnorm.ops.norms.resolved import A, as_count, as_flag, dtype_name


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
        """Normalize x. See the function of the same name, such as `group_norm`."""
        raise NotImplementedError


class GroupNorm(_ChannelNorm):
    """Group normalization as a module: torch.nn.GroupNorm on WebGPU.

    See `webnorm.group_norm` for the formula, the shapes and the dtypes. You may change or replace the
    parameters between calls; each call uploads them.

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

    def forward(self, x: A) -> A:
        """Normalize x.

        Parameters
        ----------
        x : numpy.ndarray or GpuArray
            Array of shape (N, num_channels, ...), or (N, ..., num_channels) with `channels_last`; float32,
            float16 or bfloat16.

        Returns
        -------
        numpy.ndarray or GpuArray
            y, of x's shape, dtype and type.

        Raises
        ------
        WebnormError
            For the same reasons as `group_norm`.
        """
        _check_channels(x, self.num_channels, self.channels_last)
        return group_norm(
            x,
            self.num_groups,
            self.weight,
            self.bias,
            self.eps,
            activation=self.activation,
            channels_last=self.channels_last,
            device=self.device,
        )

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

    def forward(self, x: A) -> A:
        """Normalize x, or in evaluation with running statistics use those.

        Parameters
        ----------
        x : numpy.ndarray or GpuArray
            Array of shape (N, num_features, ...), or (num_features, ...) without a batch; float32, float16 or
            bfloat16. It must be a NumPy array if the module tracks statistics.

        Returns
        -------
        numpy.ndarray or GpuArray
            y, of x's shape, dtype and type.

        Raises
        ------
        WebnormError
            For the same reasons as `instance_norm`, or x has another number of dimensions.
        """
        check_array_type("x", x, known=STORAGE)
        if x.ndim not in (self._dimensions, self._dimensions + 1):
            count = self._dimensions
            raise WebnormError(f"x has shape {tuple(x.shape)}; expected {count} or {count + 1} dimensions")
        batch: Any = x.reshape(1, *x.shape) if x.ndim == self._dimensions else x
        _check_channels(batch, self.num_features)
        y = instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum,
            self.eps,
            device=self.device,
        )
        return cast("A", y.reshape(x.shape))

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
    if not count:
        raise WebnormError(f"{name} is {shown(value)}; expected 1 or more")
    return count


def _check_channels(x: AnyArray, channels: int, channels_last: bool = False) -> None:
    found, _ = channels_of(x, channels_last)
    if found != channels:
        raise WebnormError(f"x has shape {tuple(x.shape)}; expected {channels} channels, not {found}")
