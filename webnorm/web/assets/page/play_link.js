// The connection to the server: requests with the token, and the stream of snapshots.

const KEY = "webnorm play token";
const RETRY_MS = 500;
// The server sends something every five seconds.
const SILENCE_MS = 12000;

/** A refusal of the server: its message, and the status. */
export class Refused extends Error {
  /**
   * @param {string} message
   * @param {number} status
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Take the token out of the address, so that it is not copied by accident, and keep it for this tab. */
export function takeToken() {
  const given = location.hash.slice(1);
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/**
 * Send a request; throws Refused with the server's message if it fails.
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
export async function ask(method, path, body, signal) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  if (body) headers["Content-Type"] = "application/json";
  const options = { method, headers, body: body && JSON.stringify(body), signal };
  const answer = await fetch(path, options).catch((error) => {
    throw new Refused(`the server does not answer (${error.message}); check that webnorm play is running`, 0);
  });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ error: answer.statusText }));
  throw new Refused(said.error, answer.status);
}

/**
 * Receive every snapshot while the page is open.
 * @param {(snapshot: object) => void} take
 * @param {(connected: boolean, why?: string) => void} onChange  called when the connection opens or closes
 */
export async function listen(take, onChange) {
  for (;;) {
    let why = "the server ended the connection";
    try {
      await receive(take, onChange);
    } catch (error) {
      why = error.message;
      if (error.status === 403) return onChange(false, why);
    }
    onChange(false, `${why}; trying again`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function receive(take, onChange) {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), SILENCE_MS);
  try {
    const answer = await ask("GET", "api/events", undefined, quiet.signal);
    onChange(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let pieces = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), SILENCE_MS);
      pieces.push(value);
      if (value.endsWith("\n\n")) {
        const newest = newestOf(pieces.join(""));
        pieces = [];
        // Run outside of this function, so that an error of the page does not look like a lost connection.
        if (newest) queueMicrotask(() => take(JSON.parse(newest)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Return the last snapshot of the received events. */
function newestOf(text) {
  return text
    .split("\n\n")
    .filter((event) => event.startsWith("data: "))
    .at(-1)
    ?.slice("data: ".length);
}
