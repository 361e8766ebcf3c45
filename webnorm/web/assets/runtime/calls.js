// Bind groups and dispatches of earlier calls, kept for reuse.

// The most entries for one combination of buffers: a decoder varies rows, an arena varies offsets. The limit bounds
// the memory of an app that never repeats a call.
const MOST_KEPT = 256;

/** A Map that keeps the most recently used entries. */
export class Latest extends Map {
  get(key) {
    const value = super.get(key);
    if (value) this.set(key, value);
    return value;
  }

  set(key, value) {
    this.delete(key);
    if (this.size === MOST_KEPT) this.delete(this.keys().next().value);
    return super.set(key, value);
  }
}

/**
 * Return the Latest of a combination of buffers, whose order the caller fixes. Each buffer is a key of one level of
 * weak maps; `first` is the top level. An entry is freed with any of its buffers, so layers need no clean-up.
 */
export function keptFor(first, buffers) {
  return buffers.reduce((level, buffer, at) => {
    if (!level.has(buffer)) level.set(buffer, at + 1 < buffers.length ? new WeakMap() : new Latest());
    return level.get(buffer);
  }, first);
}
