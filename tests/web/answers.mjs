// Results of runtime.js that need no GPU: node answers.mjs PACKAGE FOLDER
//
// FOLDER/asked.json  { trees: [[tree, names]], descriptors: [{ bundle, features, limits, info? }],
//                      choices: [{ bundle, features, limits, info, language?, cols }] }
// found              { trees: [value], descriptors: [...],
//                      choices: [{ shader, reason, refused } or { error }] }

import { finish, json, runtime } from "./engine.mjs";

const { trees, choices, descriptors } = json("asked.json");

function chosen({ bundle, features, limits, info, language, cols }) {
  const { manifest } = json(bundle);
  const traits = runtime.traitsOf({ features: new Set(features), limits }, info);
  if (language) traits.languageFeatures = new Set(language);
  try {
    const { shader, reason, refused } = runtime.choose(manifest, traits, cols);
    const reasons = refused.map((one) => `${one.shader.name} ${one.why}`);
    return { shader: shader.name, reason, refused: reasons };
  } catch (error) {
    return { error: error.message };
  }
}

const descriptorOf = ({ bundle, features, limits, info }) =>
  runtime.descriptorFor(json(bundle).manifest, { features: new Set(features), limits, info });

function valueOf([tree, names]) {
  try {
    return runtime.evaluate(tree, names);
  } catch (error) {
    return error.message;
  }
}

await finish({
  trees: trees.map(valueOf),
  choices: choices.map(chosen),
  descriptors: descriptors.map(descriptorOf),
});
