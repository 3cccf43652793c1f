// Delivers lines of Influx line protocol, as they come on standard input, with nothing but Node (18 or newer):
//
//   echo "room,floor=2 temperature=21.5" | SPM_URL=http://localhost:8000 SPM_TOKEN=spm_… node send.mjs
//
// In bodies of 5,000 lines, each under an id of its own: what is sent again after a failure is counted once.
// Lines without a time get the server's; give your own in milliseconds if what you send may have to wait.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";

// One body, until the server has it for good; false where it refuses lines, which saying again would not help.
async function deliver(lines) {
  const headers = {
    Authorization: `Bearer ${process.env.SPM_TOKEN}`,
    "Content-Encoding": "gzip",
    "X-Message-Id": randomUUID().replaceAll("-", ""),
  };
  const body = gzipSync(lines.join("\n"));
  const url = `${process.env.SPM_URL}/write?precision=ms`;
  for (let pause = 1; ; pause = Math.min(2 * pause, 60)) {
    let [wait, reason] = [pause, ""];
    try {
      const answer = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(30_000) });
      if (answer.ok) return true;
      reason = `${answer.status} ${await answer.text()}`;
      if (answer.status < 500 && ![408, 429].includes(answer.status)) {
        console.error(reason);
        return false;
      }
      wait = Number(answer.headers.get("Retry-After")) || pause;
    } catch (error) {
      reason = error.cause?.message ?? error.message; // not there
    }
    console.error(`waiting ${wait} s: ${reason}`);
    await sleep(1000 * wait);
  }
}

let lines = [];
for await (const line of createInterface({ input: process.stdin })) {
  if (lines.push(line) < 5000) continue;
  if (!(await deliver(lines))) process.exitCode = 1;
  lines = [];
}
if (lines.length && !(await deliver(lines))) process.exitCode = 1;
