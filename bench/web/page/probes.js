// Abilities that each library needs its own code for.

import { dispatches, dispatchesOf } from "./calls.js";
import { drawn } from "./problems.js";
import { recorded } from "./recorder.js";
import { normOf as exportOf, buffersFor, dispatch } from "./libraries/webnorm.js";
import { normOf as tfNorm, submit } from "./libraries/tfjs.js";
import { arrayOf, normOf as jaxNorm, typesOf } from "./libraries/jax.js";

const GRADIENTS = "gradients";
const RESIDUAL = "residual added in the same dispatch";
const FLOAT8 = "float8 output";

/** Draw the inputs of a float32 LayerNorm; probes also use x as the residual. */
function inputs({ rows, cols, eps }) {
  return drawn({ op: "layer_norm", dtype: "float32", rows, cols, eps, mean: 0 });
}

function one(count, what) {
  if (count !== 1) throw new Error(`${what}: ${dispatches(count)}`);
  return dispatches(count);
}

// --- webnorm's exports

/** Run an export by its name, and count its dispatches. */
const exported = (name, more = () => ({})) =>
  async function probe({ host, machine }, _, { rows, cols, eps }) {
    const norm = await exportOf(host, machine, name, cols, eps);
    const { stored } = inputs({ rows, cols, eps });
    const { device } = machine;
    const buffers = buffersFor(device, norm, { ...stored, ...more(stored) }, rows);
    return dispatchesOf(async () => dispatch(device, norm, buffers, rows));
  };

const webnorm = {
  [FLOAT8]: exported("float8"),
  [RESIDUAL]: exported("residual", ({ x }) => ({ residual: x })),
  [GRADIENTS]: exported("layer_norm_backward", ({ x }) => ({ dy: x })),
};

// --- onnxruntime-web

/** Run a one-node model, and count its dispatches; a node on the processor has none. */
const modelled = (name, more = () => ({})) =>
  async function probe(_, { ort, session }, part) {
    const { stored } = inputs(part);
    const model = await session(name);
    const given = { ...stored, ...more(stored) };
    const shape = (data) => (data.length === part.cols ? [part.cols] : [part.rows, part.cols]);
    const feeds = Object.fromEntries(
      model.inputNames.map((key) => [key, new ort.Tensor("float32", given[key], shape(given[key]))]),
    );
    const call = async () => Object.values(await model.run(feeds)).forEach((tensor) => tensor.dispose());
    await call();
    return dispatchesOf(call);
  };

const ort = {
  [FLOAT8]: modelled("float8"),
  [RESIDUAL]: modelled("skip", ({ x }) => ({ skip: x.slice() })),
  [GRADIENTS]: async (_, library) => {
    if (!("TrainingSession" in library.ort)) throw new Error("the package has no training");
    return "TrainingSession";
  },
};

// --- tfjs

/** Count the dispatches of a function of tensors, after a first call that compiles its shaders. */
async function tfCount(tf, work) {
  const call = async () => {
    tf.tidy(work);
    submit(tf);
  };
  await call();
  return (await recorded(call)).calls.length;
}

async function tfTensors(tf, part) {
  const { x, weight, bias } = inputs(part).stored;
  return { x: tf.tensor(x, [part.rows, part.cols]), weight: tf.tensor(weight), bias: tf.tensor(bias) };
}

const tfjs = {
  [FLOAT8]: async (_, { tf }) => tf.tensor([1], [1], "float8_e4m3fn").dtype,
  [RESIDUAL]: async (_, { tf }, part) => {
    const given = await tfTensors(tf, part);
    const norm = tfNorm(tf, "layer_norm", part.eps);
    return one(await tfCount(tf, () => norm({ ...given, x: tf.add(given.x, given.x) })), "addition and norm");
  },
};

// --- jax-js

async function jaxCount(given, work) {
  const call = async () => {
    for (const array of [work(...given.map((array) => array.ref))].flat()) {
      await array.blockUntilReady();
      array.dispose();
    }
  };
  await call();
  return (await recorded(call)).calls.length;
}

function jaxArrays({ jax }, part) {
  const { x, weight, bias } = inputs(part).stored;
  return [arrayOf(jax, x, [part.rows, part.cols], "float32"), ...[weight, bias].map((data) => jax.numpy.array(data))];
}

const jax = {
  [FLOAT8]: async (_, library) => {
    if (!Object.values(library.jax.DType).some((name) => /float8/.test(name))) throw new Error(typesOf(library.jax));
    return "float8";
  },
  [RESIDUAL]: async (_, library, part) => {
    const norm = jaxNorm(library.jax, "layer_norm", part.eps);
    const both = library.jax.jit((x, weight, bias) => norm(x.ref.add(x), weight, bias));
    return one(await jaxCount(jaxArrays(library, part), both), "addition and norm");
  },
  [GRADIENTS]: async (_, library, part) => {
    const norm = jaxNorm(library.jax, "layer_norm", part.eps);
    const loss = (x, weight, bias) => norm(x, weight, bias).sum();
    const gradient = library.jax.jit(library.jax.grad(loss, { argnums: [0, 1, 2] }));
    return dispatches(await jaxCount(jaxArrays(library, part), gradient));
  },
};

/** The probes by module and ability. */
export const PROBES = { webnorm, ort, tfjs, jax };
