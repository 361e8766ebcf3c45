// A language for kernels' files: a TOML header, then WGSL with Jinja, recognised token by token.

import { StreamLanguage } from "@codemirror/language";

const words = (text) => new Set(text.split(" "));
const KEYWORDS = words(
  "alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if " +
    "let loop override requires return struct switch true var while",
);
const JINJA_KEYWORDS = words(
  "and call context elif else endcall endfor endif endmacro endset false for from if import in include is macro " +
    "none not or set true with without",
);
const TYPE = /^(bool|f16|f32|i32|u32|vec[234][fhiu]?|mat[234]x[234][fh]?|array|atomic|ptr|Vec|function|private|read|read_write|storage|uniform|immediate|workgroup|write)$/;
const NUMBER = /^(0[xX][\da-fA-F.]+([pP][+-]?\d+)?[fhiu]?|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fhiu]?)/;
const NAME = /^[A-Za-z_]\w*/;
const STRING = /^("([^"\\]|\\.)*"?|'([^'\\]|\\.)*'?)/;
const ENDS = { "{": /^[-+]?\}\}/, "%": /^[-+]?%\}/ };

/** Read up to the end of a piece, or to the end of the line. */
function upTo(stream, end, found) {
  while (!stream.eol()) {
    if (stream.match(end)) return found();
    stream.next();
  }
  return null;
}

function jinja(stream, state) {
  if (stream.match(ENDS[state.inside])) {
    state.inside = null;
    return "meta";
  }
  if (stream.match(STRING)) return "string";
  if (stream.match(NUMBER)) return "number";
  const name = stream.match(NAME);
  if (name) return JINJA_KEYWORDS.has(name[0]) ? "controlKeyword" : "variableName.special";
  stream.next();
  return "operator";
}

function header(stream, state) {
  if (stream.sol()) {
    if (stream.match(/^\/\/ \/\/\/\s*$/) || !stream.match(/^\/\/ ?/)) state.header = false;
    return "comment";
  }
  if (stream.match(/^\[[^\]]*\]\s*$/)) return "heading";
  if (stream.match(/^[\w"-]+(?=\s*=)/)) return "propertyName";
  if (stream.match(STRING)) return "string";
  if (stream.match(NUMBER)) return "number";
  if (stream.match(/^(true|false)\b/)) return "keyword";
  if (stream.match(/^#.*/)) return "comment";
  stream.next();
  return null;
}

function comment(stream, state) {
  upTo(stream, /^\*\/|^\/\*/, () => {
    state.depth += stream.current().endsWith("*/") ? -1 : 1;
  });
  return "comment";
}

function wgsl(stream, state) {
  if (stream.match("{#")) {
    state.inside = "#";
    return "comment";
  }
  const opened = stream.match(/^\{([{%])[-+]?/);
  if (opened) {
    state.inside = opened[1];
    return "meta";
  }
  if (stream.match("/*")) {
    state.depth = 1;
    return "comment";
  }
  if (stream.match(/^\/\/ \/\/\/ \w+\s*$/)) {
    state.header = true;
    return "comment";
  }
  // A line comment ends where Jinja begins.
  if (stream.match(/^\/\/([^{]|\{(?![{%#]))*/)) return "comment";
  if (stream.match(/^@\w+/)) return "annotation";
  if (stream.match(NUMBER)) return "number";
  const name = stream.match(NAME);
  if (name) return KEYWORDS.has(name[0]) ? "keyword" : TYPE.test(name[0]) ? "typeName" : called(stream);
  return stream.match(/^[()[\]{}]/) ? "bracket" : stream.next() && "operator";
}

function called(stream) {
  return stream.match(/^\s*\(/, false) ? "variableName.function" : "variableName";
}

/** The language of a kernel's file. */
export const template = StreamLanguage.define({
  name: "wgsl-template",
  startState: () => ({ inside: null, depth: 0, header: false }),
  token(stream, state) {
    if (state.inside === "#") {
      upTo(stream, "#}", () => {
        state.inside = null;
      });
      return "comment";
    }
    if (state.header) return header(stream, state);
    if (stream.eatSpace()) return null;
    if (state.inside) return jinja(stream, state);
    return state.depth > 0 ? comment(stream, state) : wgsl(stream, state);
  },
  languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } } },
});
