"""Plans: the buffers, bindings and dispatches that compute one problem with one shader on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webnorm.gpu.buffers import POISON, fill
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import Pipeline
from webnorm.gpu.schedule import Schedule
from webnorm.kernels.rendering.render import Shader
from webnorm.op.corpus import ForceSplit


class Plan:
    """A schedule with buffers bound to it, ready to encode.

    `inputs` and `outputs` map tensors to buffers, one for each set; they may be shared with other plans.
    `extra` are buffers bound whole behind the shader's own. `narrow` has the batch cut although the device
    has room for them.

    Dispatches are numbered, and take the sets of outputs in turn. Where there are two sets of inputs or more,
    outputs are written from one set and then from the next, so that with two versions of the inputs
    (Inputs' `others`) what lies in them is never what a dispatch has to put there.
    """

    def __init__(
        self,
        device: Device,
        shader: Shader,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Mapping[str, Sequence[Any]],
        pipelines: Sequence[Pipeline],
        extra: Sequence[Any] = (),
        narrow: ForceSplit | None = None,
    ) -> None:
        self.device, self.shader = device, shader
        self.buffers = {**inputs, **outputs}
        self.sets = max((len(buffers) for buffers in (outputs or inputs).values()), default=1)
        self.input_sets = max((len(buffers) for buffers in inputs.values()), default=1)
        self._schedule = schedule = Schedule(device, shader, pipelines, narrow)
        schedule.set_scalars(shader.problem)
        self.scratch = {name: device.create_buffer(size) for name, size in schedule.scratch.items()}
        for buffer in self.scratch.values():
            # A call's scratch holds what others left there: a kernel that counts on zeros is to be seen.
            fill(device, buffer, 0, POISON)
        read = [
            {
                **{name: buffers[at] for name, buffers in inputs.items()},
                **{name: device.create_buffer(size) for name, size in schedule.packed.items()},
                **self.scratch,
            }
            for at in range(self.input_sets)
        ]
        encoder = device.handle.create_command_encoder()
        for buffers in read:
            schedule.pack(encoder, buffers)
        device.handle.queue.submit([encoder.finish()])
        self._groups = [
            schedule.bind(
                {
                    **read[self.input_set(index)],
                    **{name: buffers[index % self.sets] for name, buffers in outputs.items()},
                },
                extra,
            )
            for index in range(self.sets * min(self.input_sets, 2))
        ]

    @property
    def dispatches(self) -> int:
        """How many dispatches of the device stand behind one number: passes times slices."""
        return len(self._schedule.dispatches)

    def input_set(self, index: int) -> int:
        """The set of inputs that the dispatch of this number takes; it writes set `index` modulo `sets`."""
        return (index % self.sets + index // self.sets % 2) % self.input_sets

    def encode(self, compute: Any, index: int = 0) -> None:
        """Put the dispatches of this number into a compute pass."""
        self._schedule.encode(compute, self._groups[index % len(self._groups)])

    def run(self, first: int = 0) -> None:
        """Write every set of outputs once, with the dispatches from this number on."""
        self.run_all(range(first, first + self.sets))

    def run_all(self, dispatches: range) -> None:
        """Submit the dispatches of these numbers in one pass."""

        def encode(compute: Any) -> None:
            for index in dispatches:
                self.encode(compute, index)

        self.device.run_pass(encode)
