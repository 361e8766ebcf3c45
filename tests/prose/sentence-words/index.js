// Limits how many words a sentence has. A piece of code counts as one word.
//
// textlint-rule-en-max-word-count, the published rule, ends a sentence at the end of each line.

const { SentenceSplitterSyntax, splitAST } = require("sentence-splitter");
const { StringSource } = require("textlint-util-to-string");

const codeAsWord = ({ node, maskValue }) => (node.type === "Code" ? maskValue("x") : undefined);

module.exports = ({ Syntax, RuleError, report }, { max }) => ({
  [Syntax.Paragraph](paragraph) {
    for (const sentence of splitAST(paragraph).children) {
      if (sentence.type !== SentenceSplitterSyntax.Sentence) continue;
      const text = new StringSource(sentence, { replacer: codeAsWord }).toString();
      // The splitter takes a number at the end of a sentence for a list's marker.
      const counts = text.split(/(?<=\d)\.\s+(?=\p{Lu})/u).map((part) => part.match(/\S*\w\S*/g)?.length ?? 0);
      const most = Math.max(...counts);
      if (most > max) report(sentence, new RuleError(`A sentence of ${most} words; split it, ${max} is the limit`));
    }
  },
});
