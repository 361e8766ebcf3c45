// What calls dispatch, kept for those that come again.

// Of the same buffers so many rows and offsets: the steps of a decoder, the tensors of an arena. An app that never
// comes back to them leaves no more than that behind.
const MOST_KEPT = 256;

/** A Map of the entries that were used last. */
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
 * What is kept for a combination of buffers, in an order of the caller's: a Latest below weak maps, of which
 * `first` is the first buffer's. It goes when one of the buffers does, so that no number of layers is too many and
 * nobody has to say that buffers are done with.
 */
export function keptFor(first, buffers) {
  return buffers.reduce((level, buffer, at) => {
    if (!level.has(buffer)) level.set(buffer, at + 1 < buffers.length ? new WeakMap() : new Latest());
    return level.get(buffer);
  }, first);
}
