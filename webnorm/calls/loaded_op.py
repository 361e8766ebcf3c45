"""Ops as functions on arrays: `softmax = load_op("kernels/softmax"); y = softmax(x)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webnorm.calls.arrays import GpuArray, check_array_type, check_device
from webnorm.calls.call import AnyArray, compute
from webnorm.calls.session import check_kernel
from webnorm.errors import WebnormError, counted, unknown
from webnorm.gpu.device import Device
from webnorm.op import expression
from webnorm.op.dtypes import DTYPE_NAMES, DTYPES, STORAGE
from webnorm.op.op import Op, Task, Tensor
from webnorm.op.registry import load_op as load_folder
from webnorm.op.registry import op_named


class LoadedOp:
    """A function on arrays that computes an op, from `load_op` or `op_function`.

    Pass the inputs in the order of op.py, or by name. Scalars, options, and sizes that no array has are
    keyword arguments. See `webnorm.load_op` for an example.

    Attributes
    ----------
    op : Op
        The definition of the op.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.__doc__ = op.summary

    @property
    def name(self) -> str:
        """The name of the op. Once the op is loaded, `--op` accepts it."""
        return self.op.name

    def __repr__(self) -> str:
        return f"<LoadedOp {self.op.name}: {', '.join(one.name for one in self.op.tensors)}>"

    def __call__(
        self,
        *arrays: AnyArray,
        kernel: str | Path | None = None,
        device: Device | None = None,
        **given: Any,
    ) -> Any:
        """Compute the op.

        Parameters
        ----------
        arrays : numpy.ndarray or GpuArray
            The inputs in order. Inputs that belong to an option are optional.
        kernel : str or pathlib.Path, optional
            Name of a kernel, or path of a .wgsl file. Default: the choice of `auto`.
        device : Device, optional
            A device from `webnorm.open_device`. Default: the device of the arrays, or the shared device.
        given
            Inputs, scalars, options and sizes by name.

        Returns
        -------
        numpy.ndarray, GpuArray or tuple
            The output, or a tuple of the outputs in the order of op.py. They are GpuArrays if an input is
            one.

        Raises
        ------
        WebnormError
            Shapes or dtypes do not match the op, an input is missing, or a name is unknown.
        """
        check_device(device)
        check_kernel(self.op, kernel)
        inputs, others = self._inputs(arrays, given)
        problem = self._problem(inputs, others)
        keep = any(isinstance(one, GpuArray) for one in inputs.values())
        task = Task(self.op, problem)
        found = compute(task, inputs, device=device, kernel=kernel, keep=keep)
        outputs = tuple(found[one.name] for one in self.op.outputs(problem))
        return outputs[0] if len(outputs) == 1 else outputs

    def _inputs(
        self, arrays: tuple[AnyArray, ...], given: Mapping[str, Any]
    ) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Return the input arrays by name, and the other arguments."""
        names = [one.name for one in self.op.tensors if one.access == "read"]
        if len(arrays) > len(names):
            settings = (*self.op.problem_type.SCALARS, *self.op.options)
            by_name = ", ".join(name for name in settings if name not in names)
            hint = f"; pass {by_name} by name" if by_name else ""
            given_count = counted(len(arrays), "argument")
            raise WebnormError(f"{self.name} takes {', '.join(names)} in order, not {given_count}{hint}")
        inputs = dict(zip(names, arrays, strict=False))
        flags = {one.option for one in self.op.tensors if one.option is not None}
        others = dict(given)
        for name in names:
            # A flag may have the name of its tensor.
            if name in others and not (name in flags and isinstance(others[name], bool)):
                if name in inputs:
                    raise WebnormError(f"{name} is given twice, in order and by name")
                inputs[name] = others.pop(name)
        inputs = {name: one for name, one in inputs.items() if one is not None}
        for name, array in inputs.items():
            storage = self.op.named[name].storage
            check_array_type(name, array, known=(storage,) if storage in DTYPES else STORAGE)
        return inputs, others

    def _problem(self, inputs: Mapping[str, AnyArray], others: Mapping[str, Any]) -> Any:
        kind = self.op.problem_type
        options_type = type(self.op.defaults)
        options = {one: others[one] for one in vars(self.op.defaults) if one in others}
        scalars = {one: others[one] for one in kind.SCALARS if one in others}
        sizes = {one: others[one] for one in kind.SIZES if one in others}
        known = {*vars(self.op.defaults), *kind.SCALARS, *kind.SIZES}
        for name in others:
            if name not in known:
                raise unknown("argument", name, known | {one.name for one in self.op.tensors})
        for tensor in self.op.tensors:
            if tensor.access != "read":
                continue
            if tensor.option is None and tensor.name not in inputs:
                raise self._missing(tensor)
            if tensor.option in vars(self.op.defaults) and tensor.name in inputs:
                options.setdefault(tensor.option, True)
        chosen = options_type(**options)
        problem = self.op.problem(
            *self._sizes(inputs, sizes),
            dtype=self._dtype(inputs),
            options=chosen,
            distribution="given",
            **scalars,
        )
        for tensor in self.op.inputs(problem):
            self._check(tensor, inputs.get(tensor.name), problem)
        present = {one.name for one in self.op.inputs(problem)}
        for name in inputs.keys() - present:
            option = self.op.named[name].option
            raise WebnormError(
                f"{name} is given, but the options do not satisfy {option!r}; set them, or leave {name} out"
                if option not in vars(self.op.defaults)
                else f"{name} is given, but the option {option} is off; set it, or leave {name} out"
            )
        return problem

    def _sizes(self, inputs: Mapping[str, AnyArray], given: Mapping[str, int]) -> tuple[int, ...]:
        """Return the sizes in the op's order, read from the dimensions of the arrays that are plain sizes."""
        found = dict(given)
        seen = dict.fromkeys(given, "the argument")
        for name, array in inputs.items():
            shape = self.op.named[name].shape
            if len(array.shape) != len(shape):
                raise WebnormError(
                    f"{name} has the shape {array.shape}; expected {len(shape)} dimensions: "
                    f"{' '.join(map(str, shape))}"
                )
            for length, size in zip(array.shape, shape, strict=True):
                if isinstance(size, str) and size in self.op.problem_type.SIZES:
                    if found.setdefault(size, length) != length:
                        both = f"{found[size]} by {seen[size]} and {length} by {name}"
                        raise WebnormError(f"{size} is {both}; expected one size")
                    seen.setdefault(size, name)
        missing = [name for name in self.op.problem_type.SIZES if name not in found]
        if missing:
            raise WebnormError(
                f"{self.name} needs the size {', '.join(missing)}, which no array has; pass {missing[0]}=N"
            )
        return tuple(found[name] for name in self.op.problem_type.SIZES)

    def _dtype(self, inputs: Mapping[str, AnyArray]) -> str:
        """Return the storage type of the problem."""
        follows = {
            name: DTYPE_NAMES[array.dtype]
            for name, array in inputs.items()
            if self.op.named[name].storage == "dtype"
        }
        if len(set(follows.values())) > 1:
            listed = ", ".join(f"{name} {dtype}" for name, dtype in follows.items())
            raise WebnormError(f"the inputs of {self.name} have the dtypes {listed}; expected one for all")
        dtype = next(iter(follows.values()), "float32")
        if dtype not in STORAGE:
            name = next(iter(follows))
            raise WebnormError(
                f"{name} has dtype {dtype}; expected {', '.join(STORAGE)}: cast it, as with {name}.astype"
            )
        return dtype

    def _missing(self, tensor: Tensor) -> WebnormError:
        shape = " ".join(map(str, tensor.shape))
        return WebnormError(f"{self.name} needs the array {tensor.name} ({shape}); pass it")

    def _check(self, tensor: Tensor, array: AnyArray | None, problem: Any) -> None:
        """Raise WebnormError if an array is missing, or its shape or dtype does not match the tensor."""
        if array is None:
            raise self._missing(tensor)
        expected = tensor.shape_in(problem)
        if tuple(array.shape) != expected:
            text = " ".join(
                str(size) if isinstance(size, int) else expression.shown(expression.parse(size))
                for size in tensor.shape
            )
            raise WebnormError(f"{tensor.name} has the shape {array.shape}; expected {expected} ({text})")
        if DTYPE_NAMES[array.dtype] != tensor.dtype(problem):
            raise WebnormError(
                f"{tensor.name} has dtype {array.dtype}; expected {tensor.dtype(problem)}: cast it, as with "
                f"{tensor.name}.astype({tensor.dtype(problem)!r})"
            )


def load_op(folder: str | Path) -> LoadedOp:
    """Load the op of a folder as a function on arrays.

    Afterwards `webnorm.check`, `webnorm.bench` and `webnorm.evaluate` know the op by the name of the folder.
    op.py is a program: it runs with the rights of this process.

    Parameters
    ----------
    folder : str or pathlib.Path
        A folder that contains an op.py.

    Returns
    -------
    LoadedOp
        A function that takes the op's inputs.

    Raises
    ------
    WebnormError
        The folder contains no valid op. The message names the file and the line.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> cumulative_sum = webnorm.load_op("examples/ops/cumulative_sum")
    >>> cumulative_sum(np.ones((1, 4), np.float32))
    array([[1., 2., 3., 4.]], dtype=float32)
    """
    return LoadedOp(load_folder(folder))


def op_function(name: str) -> LoadedOp:
    """Return an op that comes with webnorm, or that is loaded, as a function on arrays.

    Parameters
    ----------
    name : str
        The name of an op, such as "group_norm".

    Returns
    -------
    LoadedOp
        A function that takes the op's inputs.

    Raises
    ------
    WebnormError
        There is no such op, or it has no `op.py` in the form of `define_op`, as "layer_norm".

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> group_norm = webnorm.op_function("group_norm")
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> group_norm(x, weight=False, bias=False, channels=2, spatial=2, groups=1).round(3)
    array([[-1.342, -0.447,  0.447,  1.342]], dtype=float32)
    """
    op = op_named(name)
    if op.source is None:
        raise WebnormError(
            f"{name} is no op of define_op; expected group_norm or another: call webnorm.{name}"
        )
    return LoadedOp(op)
