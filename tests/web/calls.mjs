// The use of a norm over its lifetime: node calls.mjs PACKAGE FOLDER
//
// FOLDER/bundle.json    a norm with a float8 out_dtype, 61 columns
// FOLDER/gradient.json  the gradient of one
// found                 { description: null, or the reason for a failure }

import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import {
  adapter,
  altered,
  computed,
  finish,
  guarded,
  json,
  messageOf,
  open,
  release,
  runtime,
  sameBytes,
  storage,
  submit,
  verdictOn,
  view,
  written,
} from "./engine.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");
const forward = json("bundle.json");
const gradient = json("gradient.json");
const found = {};
const plain = await open({ requiredFeatures: ["subgroups"].filter((name) => adapter.features.has(name)) });

// Counts created objects.
const created = { createBindGroup: 0, createBuffer: 0 };
const counting = (name) => (descriptor) => {
  created[name]++;
  return plain[name](descriptor);
};
const device = altered(plain, Object.fromEntries(Object.keys(created).map((name) => [name, counting(name)])));

const normOf = ({ manifest, texts }, options) => runtime.createNorm(device, manifest, texts, options);

let seed = 1;
function random() {
  seed = (seed * 48271) % 0x7fffffff;
  return (seed / 0x7fffffff - 0.5) * 4;
}

/** Return inputs for a number of rows, different on each call. */
function drawn(norm, rows) {
  const inputs = norm.tensors.filter(({ access }) => access === "read");
  const draw = ({ shape, dtype }) => {
    const length = (shape[0] === "rows" ? rows : 1) * norm.cols;
    return storage.encode(Float64Array.from({ length }, random), dtype);
  };
  return Object.fromEntries(inputs.map((tensor) => [tensor.name, draw(tensor)]));
}

async function holds(what, check) {
  found[what] = await messageOf(check);
}

for (const [kind, bundle] of Object.entries({ forward, gradient })) {
  const { manifest } = bundle;
  // The shader for software adapters has partial sums of at most four workgroups for any number of rows.
  const growing = { shader: `${manifest.cols[0]}-portable` };
  const right = (norm, arrays, outputs, rows, options) =>
    assert.equal(verdictOn(norm, manifest, arrays, outputs, rows, options).reason, null);

  await holds(
    `${kind}: a command encoder gets a labelled pass for each call, the results are a pass's`,
    async () => {
      const norm = await normOf(bundle, { label: "mine" });
      const arrays = drawn(norm, 9);
      const own = guarded(plain, norm, arrays, 9);
      const labels = [];
      const encoder = plain.createCommandEncoder();
      const watching = altered(encoder, {
        beginComputePass(descriptor) {
          labels.push(descriptor.label);
          return encoder.beginComputePass(descriptor);
        },
      });
      norm.encode(watching, { ...own, rows: 9 });
      norm.encode(watching, { ...own, rows: 9 });
      plain.queue.submit([encoder.finish()]);
      assert.deepEqual(labels, ["mine", "mine"]);
      const { outputs, hit } = await written(plain, norm, own, 9);
      assert.deepEqual(hit, []);
      assert.ok(sameBytes(outputs, (await computed(plain, norm, arrays, 9)).outputs));
      right(norm, arrays, outputs, 9);
      release(own);
      norm.destroy();
    },
  );

  for (const own of [true, false]) {
    const where = own ? "pass" : "command encoder";
    await holds(`${kind}: calls of 5, 500 and 5 rows in one ${where}, on other buffers`, async () => {
      const norm = await normOf(bundle, growing);
      const calls = [5, 500, 5, 1, 0, 500].map((rows, at) => {
        const arrays = drawn(norm, rows);
        return { rows, arrays, bound: guarded(plain, norm, arrays, rows, { offset: 256 * (at % 3) }) };
      });
      const encoder = plain.createCommandEncoder();
      const pass = own ? encoder.beginComputePass() : encoder;
      calls.forEach(({ bound, rows }) => norm.encode(pass, { ...bound, rows }));
      if (own) pass.end();
      plain.queue.submit([encoder.finish()]);
      for (const { rows, arrays, bound } of calls) {
        const { outputs, hit } = await written(plain, norm, bound, rows);
        assert.deepEqual(hit, []);
        right(norm, arrays, outputs, rows);
        release(bound);
      }
      norm.destroy();
    });
  }

  await holds(`${kind}: several offsets of one buffer are kept separately`, async () => {
    const norm = await normOf(bundle);
    const rows = 7;
    const all = [drawn(norm, rows), drawn(norm, rows)];
    const { STORAGE, COPY_DST } = GPUBufferUsage;
    const stride = 4096;
    const inputs = Object.keys(all[0]);
    const one = plain.createBuffer({ size: stride * inputs.length * 2, usage: STORAGE | COPY_DST });
    const place = (at, index) => stride * (inputs.length * at + index);
    const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
    all.forEach((arrays, at) =>
      inputs.forEach((name, index) =>
        plain.queue.writeBuffer(one, place(at, index), padded(Buffer.from(view(arrays[name])))),
      ),
    );
    const targets = guarded(plain, norm, all[0], rows);
    for (const at of [0, 1, 0]) {
      const read = inputs.map((name, index) => [
        name,
        { buffer: one, offset: place(at, index), size: stride },
      ]);
      submit(plain, (pass) => norm.encode(pass, { ...targets, ...Object.fromEntries(read), rows }));
      const { outputs } = await written(plain, norm, targets, rows);
      right(norm, all[at], outputs, rows);
    }
    release(targets);
    norm.destroy();
  });

  await holds(`${kind}: other rows in the same buffers`, async () => {
    const norm = await normOf(bundle);
    const arrays = drawn(norm, 9);
    const bound = guarded(plain, norm, arrays, 9);
    for (const rows of [3, 9, 4]) {
      const first = norm.tensors.map(({ name, shape }) => [
        name,
        shape[0] === "rows" ? arrays[name]?.subarray(0, rows * norm.cols) : arrays[name],
      ]);
      const given = Object.fromEntries(first.filter(([, array]) => array));
      submit(plain, (pass) => norm.encode(pass, { ...bound, rows }));
      right(norm, given, (await written(plain, norm, bound, rows)).outputs, rows);
    }
    release(bound);
    norm.destroy();
  });

  await holds(`${kind}: a vector binds its own bytes of a buffer that is larger than a binding`, async () => {
    const sizes = [];
    const watching = altered(plain, {
      createBindGroup(descriptor) {
        for (const { resource } of descriptor.entries) sizes.push(resource.size);
        return plain.createBindGroup(descriptor);
      },
    });
    const { manifest, texts } = bundle;
    const norm = await runtime.createNorm(watching, manifest, texts);
    const bound = guarded(plain, norm, drawn(norm, 3), 3);
    const arena = plain.createBuffer({ size: 1 << 20, usage: GPUBufferUsage.STORAGE });
    submit(plain, (pass) => norm.encode(pass, { ...bound, weight: { buffer: arena, offset: 256 }, rows: 3 }));
    assert.ok(sizes.length > 3 && Math.max(...sizes) < 1 << 16);
  });

  await holds(
    `${kind}: a norm of 100 layers in one command encoder creates in the first step only`,
    async () => {
      const norm = await normOf(bundle);
      const rows = 3;
      const layers = Array.from({ length: 100 }, () => {
        const arrays = drawn(norm, rows);
        return { arrays, bound: guarded(plain, norm, arrays, rows) };
      });
      const step = () => {
        const before = { ...created };
        const encoder = plain.createCommandEncoder();
        for (const { bound } of layers) norm.encode(encoder, { ...bound, rows });
        plain.queue.submit([encoder.finish()]);
        return Object.keys(created).map((name) => created[name] - before[name]);
      };
      const scratch = norm.shader.bindings.filter((binding) => binding.scratch);
      assert.deepEqual(step(), [norm.shader.passes.length * layers.length, 1 + scratch.length]);
      assert.deepEqual(step(), [0, 0]);
      for (const { arrays, bound } of layers) {
        right(norm, arrays, (await written(plain, norm, bound, rows)).outputs, rows);
        release(bound);
      }
      norm.destroy();
    },
  );

  await holds(
    `${kind}: the 256 latest numbers of rows of the same buffers are kept, with their uniforms`,
    async () => {
      const norm = await normOf(bundle);
      const arrays = drawn(norm, 300);
      const bound = guarded(plain, norm, arrays, 300);
      const creates = (rows, own = bound) => {
        const before = created.createBindGroup + created.createBuffer;
        submit(plain, (pass) => norm.encode(pass, { ...own, rows }));
        return created.createBindGroup + created.createBuffer > before;
      };
      // The largest comes first, so that scratch does not grow later.
      const all = Array.from({ length: 300 }, (_, at) => 300 - at);
      assert.ok(all.slice(0, 256).every((rows) => creates(rows)));
      assert.ok(!all.slice(0, 256).some((rows) => creates(rows)));
      assert.ok(all.slice(256).every((rows) => creates(rows)));
      assert.ok(!creates(1) && creates(300), "the latest used is kept, the oldest is not");
      right(norm, arrays, (await written(plain, norm, bound, 300)).outputs, 300);
      const before = created.createBuffer;
      const other = guarded(plain, norm, arrays, 300);
      assert.ok(creates(300, other) && created.createBuffer === before, "a uniform serves all buffers");
      [bound, other].forEach(release);
      norm.destroy();
    },
  );

  await holds(
    `${kind}: buffers that an app dropped are freed, with everything made for them`,
    async () => {
      const seen = [];
      const watching = altered(plain, {
        createBindGroup(descriptor) {
          const group = plain.createBindGroup(descriptor);
          seen.push(new WeakRef(group));
          return group;
        },
      });
      const norm = await runtime.createNorm(watching, manifest, bundle.texts);
      const kept = guarded(plain, norm, drawn(norm, 3), 3);
      const call = () => {
        const { y, dx, ...others } = guarded(plain, norm, drawn(norm, 3), 3);
        const own = y ? { y } : { dx };
        for (const { buffer } of Object.values(own)) seen.push(new WeakRef(buffer));
        submit(plain, (pass) => norm.encode(pass, { ...kept, ...own, rows: 3 }));
        release(others);
      };
      for (let count = 0; count < 20; count++) call();
      await plain.queue.onSubmittedWorkDone();
      let left = seen.length;
      // The garbage collector decides when it frees objects; the number of turns only ends a hang.
      for (let turn = 0; turn < 1000 && left > seen.length / 10; turn++) {
        // Objects that a turn read stay alive until it ends, so a turn either reads or collects.
        await new Promise((done) => setTimeout(done));
        collectGarbage();
        await new Promise((done) => setTimeout(done));
        left = seen.filter((one) => one.deref()).length;
      }
      assert.ok(left <= seen.length / 10, `${left} of ${seen.length} are left`);
      release(kept);
      norm.destroy();
    },
  );

  await holds(`${kind}: scratch grows by doubling, and old calls keep their buffers`, async () => {
    const norm = await normOf(bundle, growing);
    const before = created.createBuffer;
    const calls = [1, 40, 300].map((rows) => {
      const arrays = drawn(norm, rows);
      return { rows, arrays, bound: guarded(plain, norm, arrays, rows) };
    });
    for (const { rows, bound, arrays } of [...calls, ...calls.toReversed()]) {
      submit(plain, (pass) => norm.encode(pass, { ...bound, rows }));
      right(norm, arrays, (await written(plain, norm, bound, rows)).outputs, rows);
    }
    // One uniform for each number of rows; the scratch of sums over rows is smaller for 1 row than for 300.
    assert.equal(created.createBuffer - before, 3 + (kind === "gradient" ? 3 : 0));
    calls.forEach(({ bound }) => release(bound));
    norm.destroy();
  });

  await holds(`${kind}: several runs at once, and two norms on one device`, async () => {
    const norms = [await normOf(bundle), await normOf(bundle, growing)];
    const calls = [4, 130, 9, 61].flatMap((rows) =>
      norms.map((norm) => ({ norm, rows, arrays: drawn(norm, rows) })),
    );
    const all = await Promise.all(calls.map(({ norm, arrays }) => norm.run(arrays)));
    calls.forEach(({ norm, rows, arrays }, at) => right(norm, arrays, all[at], rows));
    norms[0].destroy();
    // The other norm still works.
    const { rows, arrays } = calls[1];
    right(norms[1], arrays, await norms[1].run(arrays), rows);
    norms[1].destroy();
  });

  await holds(`${kind}: destroyed during a run, which still returns its result`, async () => {
    const norm = await normOf(bundle);
    const arrays = drawn(norm, 33);
    const running = norm.run(arrays);
    norm.destroy();
    right(norm, arrays, await running, 33);
  });

  await holds(`${kind}: buffers of exactly the needed bytes, also for 0 rows`, async () => {
    const norm = await normOf(bundle);
    for (const rows of [0, 1, 8]) {
      const arrays = drawn(norm, rows);
      const { outputs, hit } = await computed(plain, norm, arrays, rows, { spare: 0 });
      assert.deepEqual(hit, []);
      assert.ok(sameBytes(outputs, await norm.run(arrays)));
      right(norm, arrays, outputs, rows);
    }
    norm.destroy();
  });

  await holds(`${kind}: a caller's empty buffers for 0 rows`, async () => {
    const norm = await normOf(bundle);
    const arrays = drawn(norm, 0);
    const bound = guarded(plain, norm, arrays, 0);
    for (const { name, shape } of norm.tensors) {
      if (shape[0] !== "rows") continue;
      bound[name].buffer.destroy();
      bound[name] = plain.createBuffer({ size: 0, usage: GPUBufferUsage.STORAGE });
    }
    submit(plain, (pass) => norm.encode(pass, { ...bound, rows: 0 }));
    await plain.queue.onSubmittedWorkDone();
    norm.destroy();
  });

  await holds(`${kind}: eps and scale override the export's values; undefined does not`, async () => {
    const own = { eps: manifest.problem.eps, scale: manifest.problem.scale };
    const unset = { cols: undefined, eps: undefined, scale: undefined, shader: undefined, label: undefined };
    for (const [options, expected] of [
      [{}, own],
      [{ ...unset, adapterInfo: undefined }, own],
      [{ eps: 0.5 }, { ...own, eps: 0.5 }],
      [{ eps: 0 }, { ...own, eps: 0 }],
      ...(kind === "forward" ? [[{ scale: 0.125 }, { ...own, scale: 0.125 }]] : []),
    ]) {
      const norm = await normOf(bundle, options);
      const arrays = drawn(norm, 6);
      right(norm, arrays, await norm.run(arrays), 6, expected);
      norm.destroy();
    }
  });

  await holds(`${kind}: inputs that are parts of larger arrays`, async () => {
    const norm = await normOf(bundle);
    const arrays = drawn(norm, 3);
    const parts = Object.entries(arrays).map(([name, array]) => {
      const larger = new array.constructor(array.length + 5);
      larger.set(array, 3);
      return [name, larger.subarray(3, 3 + array.length)];
    });
    assert.ok(sameBytes(await norm.run(Object.fromEntries(parts)), await norm.run(arrays)));
    norm.destroy();
  });

  await holds(`${kind}: no error scope is left open`, async () => {
    plain.pushErrorScope("validation");
    const norm = await normOf(bundle);
    await norm.run(drawn(norm, 2));
    await messageOf(() => norm.run({}));
    await messageOf(() => runtime.createNorm(plain, manifest, {}));
    await messageOf(() => runtime.createNorm(plain, manifest, { [norm.shader.name]: "broken" }));
    plain.createBuffer({ size: 4, usage: 0xffff });
    assert.match((await plain.popErrorScope())?.message ?? "nothing was caught", /usage/i);
    norm.destroy();
  });
}

await finish(found);
