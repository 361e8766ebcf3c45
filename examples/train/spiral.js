// Points on the arms of a spiral; each arm is a class.

/** Return a generator of numbers in [0, 1), the same in every run (mixed like mulberry32). */
export function seeded(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return `each` points of every class, within the unit circle. */
export function spiral(classes, each, random) {
  const points = new Float32Array(2 * classes * each);
  const labels = new Uint32Array(classes * each);
  labels.forEach((_, at) => {
    const label = at % classes;
    const radius = 0.08 + (0.87 * Math.floor(at / classes)) / each;
    const angle = 2 * Math.PI * (label / classes + 0.8 * radius) + 0.3 * (random() - 0.5);
    points.set([radius * Math.cos(angle), radius * Math.sin(angle)], 2 * at);
    labels[at] = label;
  });
  return { points, labels };
}
