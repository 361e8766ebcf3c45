// The page's line to the server: requests with the token, and the stream of snapshots.

const KEY = "webnorm play token";
const RETRY_MS = 500;
// The server says something every five seconds.
const SILENCE_MS = 12000;

/** The server refused: what it says, and the status. */
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

/** Take the token out of the address, where people would copy it, and keep it for this tab. */
export function takeToken() {
  const given = location.hash.slice(1);
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/**
 * Ask for something; Refused with the server's words where it does not do it.
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
    throw new Refused(`the server does not answer (${error.message})`, 0);
  });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ error: answer.statusText }));
  throw new Refused(said.error, answer.status);
}

/**
 * Hear every snapshot, for as long as the page is open.
 * @param {(snapshot: object) => void} take
 * @param {(connected: boolean, why?: string) => void} told  each time that the connection comes or goes
 */
export async function listen(take, told) {
  for (;;) {
    let why = "the server ended the connection";
    try {
      await hear(take, told);
    } catch (error) {
      why = error.message;
      if (error.status === 403) return told(false, why);
    }
    told(false, `${why}; trying again`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function hear(take, told) {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), SILENCE_MS);
  try {
    const answer = await ask("GET", "api/events", undefined, quiet.signal);
    told(true);
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
        // Outside of this function, so that a page that fails is not taken for a lost connection.
        if (newest) queueMicrotask(() => take(JSON.parse(newest)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Of the events that have come, the last snapshot. */
function newestOf(text) {
  return text
    .split("\n\n")
    .filter((event) => event.startsWith("data: "))
    .at(-1)
    ?.slice("data: ".length);
}
