// An application of onnxruntime-node. Its commands and answers are those of caller.c, as far as it has them.
"use strict";

const readline = require("node:readline");
const ort = require(`${process.env.CALLER_MODULES}/onnxruntime-node`);

const GRAPH = { 0: "disabled", 1: "basic", 2: "extended", 99: "all" };
const options = new Map();
const sessions = new Map();

function pairs(words) {
  return words.map((word) => {
    const equals = word.lastIndexOf("=");
    return [word.slice(0, equals), word.slice(equals + 1)];
  });
}

function built(words) {
  const made = {};
  for (const [key, value] of pairs(words)) {
    if (key === "intra") made.intraOpNumThreads = Number(value);
    else if (key === "inter") made.interOpNumThreads = Number(value);
    else if (key === "parallel") made.executionMode = value === "1" ? "parallel" : "sequential";
    else if (key === "graph") made.graphOptimizationLevel = GRAPH[value];
    else if (key === "optimized") made.optimizedModelFilePath = value;
    else if (key === "arena") made.enableCpuMemArena = value === "1";
    else if (key === "memPattern") made.enableMemPattern = value === "1";
    else if (key.startsWith("entry.")) nested(made, key.slice(6).split("."), value);
    else throw new Error(key);
  }
  return made;
}

// {extra: {session: {intra_op: {allow_spinning: "0"}}}}
function nested(made, path, value) {
  let at = (made.extra ??= {});
  for (const part of path.slice(0, -1)) at = at[part] ??= {};
  at[path.at(-1)] = value;
}

async function obey([verb, name, ...rest]) {
  if (verb === "env") return;
  if (verb === "options") options.set(name, built(rest));
  else if (verb === "session") {
    const chosen = rest[0] === "-" ? undefined : options.get(rest[0]);
    sessions.set(name, await ort.InferenceSession.create(process.env.CALLER_MODEL, chosen));
  } else if (verb === "run") {
    const input = new ort.Tensor("float32", new Float32Array(64 * 256), [64, 256]);
    await sessions.get(name).run({ input });
  } else if (verb === "release") await sessions.get(name).release();
  else throw new Error(verb);
}

async function main() {
  process.stdout.write(`= version ${process.env.CALLER_VERSION}\n`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer = "ok";
    try {
      await obey(line.trim().split(/ +/));
    } catch (error) {
      answer = `error ${String(error.message).replaceAll("\n", " ")}`;
    }
    process.stdout.write(`= ${answer}\n`);
  }
  for (const session of sessions.values()) await session.release();
}

main();
