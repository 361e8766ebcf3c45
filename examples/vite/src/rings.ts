// The input: rings that are hidden by a mean and a contrast of each row.

/** Draw spreading rings; each row has a mean of up to 1000 and a contrast from 1 to 10. */
export function drawRings(x: Float32Array, cols: number, seconds: number): void {
  for (let i = 0; i < x.length; i++) {
    const row = Math.floor(i / cols);
    const distance = Math.hypot((i % cols) - cols / 2, row - x.length / cols / 2);
    const contrast = 1 + 9 * Math.sin(row * 5) ** 2;
    x[i] = 1000 * Math.sin(row * row) + contrast * Math.sin(distance / 9 - 4 * seconds);
  }
}
