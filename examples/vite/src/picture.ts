// Draws rows of numbers directly from their buffer.

const SHADER = `
override low: f32;
override high: f32;
override cols: u32;
@group(0) @binding(0) var<storage, read> values: array<f32>;

@vertex fn corner(@builtin(vertex_index) i: u32) -> @builtin(position) vec4f {
  return vec4f(select(-1.0, 3.0, i == 1), select(-1.0, 3.0, i == 2), 0.0, 1.0);
}

@fragment fn shade(@builtin(position) at: vec4f) -> @location(0) vec4f {
  let value = values[u32(at.y) * cols + u32(at.x)];
  let light = saturate((value - low) / (high - low));
  return vec4f(mix(vec3f(0.05, 0.07, 0.1), vec3f(0.95, 0.85, 0.55), light), 1.0);
}`;

export class Picture {
  private readonly context: GPUCanvasContext;
  private readonly pipeline: GPURenderPipeline;
  private readonly group: GPUBindGroup;

  /** Draw numbers from `low` (dark) to `high` (light) in a canvas that is as wide as a row. */
  constructor(device: GPUDevice, selector: string, buffer: GPUBuffer, low: number, high: number) {
    const canvas = document.querySelector<HTMLCanvasElement>(selector);
    const context = canvas?.getContext("webgpu");
    if (!canvas || !context) throw new Error(`${selector} is not a canvas that WebGPU can draw to`);
    const format = navigator.gpu.getPreferredCanvasFormat();
    context.configure({ device, format });
    const module = device.createShaderModule({ code: SHADER });
    const constants = { low, high, cols: canvas.width };
    this.context = context;
    this.pipeline = device.createRenderPipeline({
      layout: "auto",
      vertex: { module },
      fragment: { module, targets: [{ format }], constants },
    });
    this.group = device.createBindGroup({
      layout: this.pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: { buffer } }],
    });
  }

  draw(encoder: GPUCommandEncoder): void {
    const view = this.context.getCurrentTexture().createView();
    const pass = encoder.beginRenderPass({ colorAttachments: [{ view, loadOp: "clear", storeOp: "store" }] });
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.group);
    pass.draw(3);
    pass.end();
  }
}
