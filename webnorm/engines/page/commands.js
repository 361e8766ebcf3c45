// Runs batches of WebGPU commands from Python. webnorm/gpu/remote.py has the other end and describes the form.

const FILTERS = ["validation", "out-of-memory", "internal"];

/** Return a message: the length of its header, the header as JSON, and bytes. */
export function message(header, bytes = new Uint8Array()) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const whole = new Uint8Array(4 + text.length + bytes.length);
  new DataView(whole.buffer).setUint32(0, text.length, true);
  whole.set(text, 4);
  whole.set(bytes, 4 + text.length);
  return whole;
}

/** A device that Python controls, with its objects by number. */
export class Commands {
  #gpu;
  #device;
  #lost = null;
  #objects = new Map();
  #bytes;
  #read;
  #complaint;

  /** @param {GPU} gpu */
  constructor(gpu) {
    this.#gpu = gpu;
  }

  /**
   * Run a batch and return its answer.
   * @param {ArrayBuffer} batch
   * @returns {Promise<Uint8Array>}
   */
  async run(batch) {
    const length = new DataView(batch).getUint32(0, true);
    const commands = JSON.parse(new TextDecoder().decode(new Uint8Array(batch, 4, length)));
    this.#bytes = new Uint8Array(batch, 4 + length);
    this.#read = undefined;
    this.#complaint = null;
    let error = null;
    if (commands[0]?.[0] === "open") await this.#open(...commands.shift().slice(1));
    const device = this.#device;
    if (device) FILTERS.forEach((filter) => device.pushErrorScope(filter));
    try {
      for (const [name, ...given] of commands) await this.#do(name, given);
    } catch (thrown) {
      error = ["internal", `${thrown.name}: ${thrown.message}`];
    }
    if (device) error = (await this.#caught(device)) ?? error;
    // A compiler's own message says more than the error of the object.
    if (this.#complaint) error = ["validation", this.#complaint];
    return message({ error, lost: this.#lost }, error ? undefined : this.#read);
  }

  async #caught(device) {
    let found = null;
    for (const filter of [...FILTERS].reverse()) {
      const error = await device.popErrorScope().catch(() => null);
      if (error) found = [filter, error.message];
    }
    return found;
  }

  async #open(features, limits) {
    this.#device?.destroy();
    this.#objects.clear();
    this.#lost = this.#device = null;
    try {
      // An adapter makes one device.
      const adapter = await this.#gpu.requestAdapter();
      this.#device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: limits });
    } catch (error) {
      this.#complaint = error.message;
      return;
    }
    const device = this.#device;
    device.lost.then(({ message: text, reason }) => {
      if (device === this.#device) this.#lost = text || reason || "without a reason";
    });
  }

  async #do(name, given) {
    const make = this[`make_${name.replace(" ", "_")}`];
    if (make) {
      const [number, ...rest] = given;
      this.#objects.set(number, await make.call(this, this.#device, ...rest));
    } else {
      await this[`do_${name}`](...given);
    }
  }

  #of(number) {
    return this.#objects.get(number);
  }

  make_buffer(device, size, usage) {
    return device.createBuffer({ size, usage });
  }

  async make_module(device, code) {
    const module = device.createShaderModule({ code });
    const info = await module.getCompilationInfo?.();
    const error = info?.messages.find(({ type }) => type === "error");
    if (error) {
      const place = error.lineNum ? `:${error.lineNum}:${error.linePos} ` : "";
      // naga's messages are whole reports, with the place.
      const report = error.message.includes("┌─");
      this.#complaint = report ? error.message.trim() : `Error while parsing WGSL: ${place}error: ${error.message}`;
    }
    return module;
  }

  make_layout(device, entries) {
    return device.createBindGroupLayout({
      entries: entries.map(([binding, type]) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type },
      })),
    });
  }

  make_pipeline_layout(device, layouts, immediateSize) {
    const bindGroupLayouts = layouts.map((number) => this.#of(number));
    return device.createPipelineLayout({ bindGroupLayouts, immediateSize });
  }

  make_pipeline(device, layout, module, entryPoint) {
    return device.createComputePipeline({
      layout: this.#of(layout),
      compute: { module: this.#of(module), entryPoint },
    });
  }

  make_group(device, layout, entries) {
    return device.createBindGroup({
      layout: this.#of(layout),
      entries: entries.map(([binding, buffer, offset, size]) => ({
        binding,
        resource: { buffer: this.#of(buffer), offset, size },
      })),
    });
  }

  make_queries(device, type, count) {
    return device.createQuerySet({ type, count });
  }

  do_write(buffer, offset, begin, length) {
    this.#device.queue.writeBuffer(this.#of(buffer), offset, this.#bytes, begin, length);
  }

  do_drop(number) {
    this.#of(number)?.destroy?.();
    this.#objects.delete(number);
  }

  do_submit(commands) {
    const encoder = this.#device.createCommandEncoder();
    for (const [name, ...given] of commands) {
      if (name === "copy") {
        const [source, begin, target, at, size] = given;
        encoder.copyBufferToBuffer(this.#of(source), begin, this.#of(target), at, size);
      } else if (name === "resolve") {
        const [queries, first, count, buffer, at] = given;
        encoder.resolveQuerySet(this.#of(queries), first, count, this.#of(buffer), at);
      } else {
        this.#pass(encoder, ...given);
      }
    }
    this.#device.queue.submit([encoder.finish()]);
  }

  #pass(encoder, commands, queries) {
    const timestampWrites = queries && {
      querySet: this.#of(queries[0]),
      beginningOfPassWriteIndex: queries[1],
      endOfPassWriteIndex: queries[2],
    };
    const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
    for (const [name, first, ...rest] of commands) {
      if (name === "dispatch") pass.dispatchWorkgroups(first, ...rest);
      else if (name === "group") pass.setBindGroup(rest[0], this.#of(first));
      else if (name === "immediates") pass.setImmediates(first, new Uint32Array(rest));
      else pass.setPipeline(this.#of(first));
    }
    pass.end();
  }

  /** Wait for a mapping. Firefox and Deno look for finished work every 100 ms, and with every submission. */
  async #mapped(buffer) {
    let waiting = true;
    const mapping = buffer.mapAsync(GPUMapMode.READ).finally(() => (waiting = false));
    while (waiting) {
      await Promise.race([mapping, new Promise((done) => setTimeout(done, 1))]);
      if (waiting) this.#device.queue.submit([]);
    }
    await mapping;
  }

  /** Map a buffer and return a copy of its bytes. */
  async #bytesOf(buffer, offset, size) {
    await this.#mapped(buffer);
    return new Uint8Array(buffer.getMappedRange(offset, size).slice(0));
  }

  async do_read(number, offset, size) {
    const device = this.#device;
    const buffer = this.#of(number);
    if (buffer.usage & GPUBufferUsage.MAP_READ) {
      this.#read = await this.#bytesOf(buffer, offset, size);
      buffer.unmap();
      return;
    }
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const staging = device.createBuffer({ size: Math.max(size, 4), usage });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, offset, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    this.#read = await this.#bytesOf(staging, 0, size);
    staging.destroy();
  }
}
