// linear -> LayerNorm -> ReLU -> linear -> softmax cross-entropy, forward and backward, on buffers that stay on the GPU.

import { createLayerNorm } from "./packages/layer-norm/index.js";
import { createLayerNormBackward } from "./packages/layer-norm-backward/index.js";
import * as kernels from "./kernels.js";

const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
export const INPUTS = 2;
/** The number of columns of the exported packages. */
export const HIDDEN = 64;
const WORKGROUP = 64;

/** A network with its parameters, for a number of classes. */
export class Network {
  static async create(device, classes, random) {
    // One norm works on any rows and buffers; here the training and the picture share it.
    const [norm, normBackward] = await Promise.all([
      createLayerNorm(device),
      createLayerNormBackward(device),
    ]);
    return new Network(device, classes, random, norm, normBackward);
  }

  constructor(device, classes, random, norm, normBackward) {
    Object.assign(this, { device, classes, norm, normBackward });
    const drawn = (inputs, outputs) =>
      Float32Array.from({ length: inputs * outputs }, () => (2 * random() - 1) / Math.sqrt(inputs));
    this.parameters = {
      weight1: this.buffer(drawn(INPUTS, HIDDEN)),
      bias1: this.buffer(drawn(1, HIDDEN)),
      weight: this.buffer(new Float32Array(HIDDEN).fill(1)),
      bias: this.buffer(new Float32Array(HIDDEN)),
      weight2: this.buffer(drawn(HIDDEN, classes)),
      bias2: this.buffer(new Float32Array(classes)),
    };
  }

  /** Create a buffer with the given numbers, or with a given number of zeros. */
  buffer(content) {
    const size = 4 * (content.length ?? content);
    const buffer = this.device.createBuffer({ size, usage: STORAGE | COPY_DST | COPY_SRC });
    if (content.length) this.device.queue.writeBuffer(buffer, 0, content);
    return buffer;
  }

  /** Return a function that encodes a dispatch. Its pipeline and bind group are made once and used in every step. */
  operation(code, buffers, invocations, constants = {}) {
    const module = this.device.createShaderModule({ code });
    const pipeline = this.device.createComputePipeline({ layout: "auto", compute: { module, constants } });
    const group = this.device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
    return (encoder) => {
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(Math.ceil(invocations / WORKGROUP));
      pass.end();
    };
  }

  /** Return the forward pass from points to logits: `steps` to encode in order, and the buffers that they fill. */
  forward(points) {
    const rows = points.length / INPUTS;
    const { weight1, bias1, weight, bias, weight2, bias2 } = this.parameters;
    const buffers = {
      points: this.buffer(points),
      hidden: this.buffer(rows * HIDDEN),
      // LayerNorm stores the statistics of each row, so that its gradient need not compute them again.
      stats: this.buffer(rows * 3),
      normed: this.buffer(rows * HIDDEN),
      active: this.buffer(rows * HIDDEN),
      logits: this.buffer(rows * this.classes),
    };
    const { hidden, stats, normed, active, logits } = buffers;
    const first = { inputs: INPUTS, outputs: HIDDEN };
    const second = { inputs: HIDDEN, outputs: this.classes };
    const steps = [
      this.operation(kernels.linear, [buffers.points, weight1, bias1, hidden], rows * HIDDEN, first),
      (encoder) => this.norm.encode(encoder, { x: hidden, weight, bias, y: normed, stats, rows }),
      this.operation(kernels.relu, [normed, active], rows * HIDDEN),
      this.operation(kernels.linear, [active, weight2, bias2, logits], rows * this.classes, second),
    ];
    return { rows, buffers, steps };
  }

  /** Read the numbers in a buffer. This waits for the GPU, so training steps never do it. */
  async read(buffer) {
    const staging = this.device.createBuffer({ size: buffer.size, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
    this.device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const numbers = new Float32Array(staging.getMappedRange().slice());
    staging.destroy();
    return numbers;
  }
}

/** The training of a network on points with labels: forward, backward and Adam, entirely on the GPU. */
export class Training {
  constructor(network, points, labels, steps) {
    this.network = network;
    const forward = network.forward(points);
    const { rows } = forward;
    this.history = network.buffer(steps);
    this.gradients = {};
    for (const [name, { size }] of Object.entries(network.parameters)) {
      this.gradients[name] = network.buffer(size / 4);
    }
    this.operations = [...forward.steps, ...this.#backward(forward, labels, rows), ...this.#updates()];
  }

  /** Run one step, which is one command buffer. It reads nothing, allocates nothing and waits for nothing. */
  step() {
    const { device } = this.network;
    const encoder = device.createCommandEncoder();
    for (const encode of this.operations) encode(encoder);
    device.queue.submit([encoder.finish()]);
  }

  #backward({ buffers }, labels, rows) {
    const { network, gradients: d } = this;
    const { classes, parameters } = network;
    const { points, hidden, stats, normed, active, logits } = buffers;
    const [loss, dlogits] = [network.buffer(rows), network.buffer(rows * classes)];
    const [dactive, dnormed, dhidden] = [1, 2, 3].map(() => network.buffer(rows * HIDDEN));
    this.stepCount = network.buffer(1);
    const first = { inputs: INPUTS, outputs: HIDDEN };
    const second = { inputs: HIDDEN, outputs: classes };
    const operation = (...given) => network.operation(...given);
    const norm = { x: hidden, dy: dnormed, weight: parameters.weight, stats, rows };
    return [
      operation(kernels.crossEntropy, [logits, network.buffer(labels), loss, dlogits], rows, {
        outputs: classes,
      }),
      operation(kernels.record, [loss, this.history, this.stepCount], 1),
      operation(kernels.linearWeight, [active, dlogits, d.weight2, d.bias2], (HIDDEN + 1) * classes, second),
      operation(kernels.linearInput, [dlogits, parameters.weight2, dactive], rows * HIDDEN, second),
      operation(kernels.reluInput, [normed, dactive, dnormed], rows * HIDDEN),
      (encoder) =>
        network.normBackward.encode(encoder, { ...norm, dx: dhidden, dweight: d.weight, dbias: d.bias }),
      operation(kernels.linearWeight, [points, dhidden, d.weight1, d.bias1], (INPUTS + 1) * HIDDEN, first),
    ];
  }

  #updates() {
    return Object.entries(this.network.parameters).map(([name, value]) => {
      const moments = this.network.buffer(value.size / 2);
      const buffers = [this.gradients[name], this.stepCount, moments, value];
      return this.network.operation(kernels.adam, buffers, value.size / 4, { rate: 0.02 });
    });
  }
}
