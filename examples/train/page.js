// The page: trains the network, and draws its decision for every pixel.

import { requestDevice } from "./packages/layer-norm/index.js";
import { INPUTS, Network, Training } from "./network.js";
import { seeded, spiral } from "./spiral.js";

const CLASSES = 3;
const PIXELS = 72;
const STEPS_A_FRAME = 10;
const steps = Number(new URLSearchParams(location.search).get("steps") ?? 400);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const status = document.querySelector("output");

/** Return the pixels of the picture as points, row by row. */
function places() {
  const across = (at) => (2 * (at + 0.5)) / PIXELS - 1;
  return Float32Array.from({ length: INPUTS * PIXELS * PIXELS }, (_, at) => {
    const place = Math.floor(at / INPUTS);
    return at % INPUTS ? across(Math.floor(place / PIXELS)) : across(place % PIXELS);
  });
}

const channels = (name) =>
  colour(name)
    .match(/\w\w/g)
    .map((digits) => parseInt(digits, 16));

function drawDecisions(logits, { points, labels }) {
  const palette = Array.from({ length: CLASSES }, (_, label) => channels(`--class-${label}`));
  const ground = channels("--card");
  const image = new ImageData(PIXELS, PIXELS);
  for (let place = 0; place < PIXELS * PIXELS; place++) {
    const row = Array.from(logits.subarray(CLASSES * place, CLASSES * (place + 1)), Math.exp);
    const total = row.reduce((sum, one) => sum + one, 0);
    for (let channel = 0; channel < 3; channel++) {
      const mixed = row.reduce((sum, one, label) => sum + (one / total) * palette[label][channel], 0);
      image.data[4 * place + channel] = 0.45 * mixed + 0.55 * ground[channel];
    }
    image.data[4 * place + 3] = 255;
  }
  const small = new OffscreenCanvas(PIXELS, PIXELS);
  small.getContext("2d").putImageData(image, 0, 0);
  const canvas = document.querySelector("#decisions");
  const context = canvas.getContext("2d");
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  context.strokeStyle = colour("--card");
  context.lineWidth = 2;
  labels.forEach((label, at) => {
    const [x, y] = points.subarray(2 * at).map((one) => ((one + 1) / 2) * canvas.width);
    context.fillStyle = colour(`--class-${label}`);
    context.beginPath();
    context.arc(x, y, 6, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  });
}

function drawLosses(losses) {
  const most = Math.max(...losses, 1e-3);
  const place = (loss, at) =>
    `${((400 * at) / Math.max(1, steps - 1)).toFixed(1)},${(200 - (190 * loss) / most).toFixed(1)}`;
  document.querySelector("#losses polyline").setAttribute("points", Array.from(losses, place).join(" "));
  const last = losses.at(-1).toPrecision(2);
  status.textContent = `step ${losses.length} of ${steps}: loss ${last}, initially ${losses[0].toPrecision(2)}`;
}

async function run() {
  const device = await requestDevice();
  const random = seeded(7);
  const data = spiral(CLASSES, 100, random);
  const network = await Network.create(device, CLASSES, random);
  const training = new Training(network, data.points, data.labels, Math.max(1, steps));
  const picture = network.forward(places());
  // For the console: training.step(), network.read(training.gradients.weight).
  Object.assign(window, { network, training, data });

  for (let done = 0; done < steps;) {
    const until = Math.min(steps, done + STEPS_A_FRAME);
    for (; done < until; done++) training.step();
    const encoder = device.createCommandEncoder();
    for (const encode of picture.steps) encode(encoder);
    device.queue.submit([encoder.finish()]);
    const [history, logits] = await Promise.all([
      network.read(training.history),
      network.read(picture.buffers.logits),
    ]);
    drawLosses(history.subarray(0, done));
    drawDecisions(logits, data);
    await new Promise(requestAnimationFrame);
  }
  return { losses: Array.from(await network.read(training.history)) };
}

run().then(
  (trained) => (window.trained = trained),
  (error) => {
    status.textContent = error.message;
    window.trained = { error: error.message };
  },
);
