// Asks a running server by the two packages as anybody would, and prints what they say as JSON.
//   node ask.mjs deepl|translate ADDRESS KEY FOLDER

import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [package_, address, key, folder] = process.argv.slice(2);

// What a call gives, or the kind of its error and what it says.
async function told(call) {
  try {
    return await call();
  } catch (error) {
    return { error: error.constructor.name, message: String(error.message) };
  }
}

async function deepl() {
  const { DeepLClient } = await import("deepl-node");
  const client = new DeepLClient(key, { serverUrl: address, maxRetries: 0 });
  const said = {};
  said.one = await told(() => client.translateText("abc de", null, "de"));
  if (said.one.error) return said;
  said.several = await client.translateText(["abc", "de\nabc"], "en", "de");
  said.tags = await client.translateText("<a href='x'>abc</a> de", "en", "de", { tagHandling: "html" });
  said.sources = await client.getSourceLanguages();
  said.targets = await client.getTargetLanguages();
  said.pairs = await client.getGlossaryLanguagePairs();
  said.wrong = await told(() => client.translateText("abc", null, "fi"));
  const entries = new (await import("deepl-node")).GlossaryEntries({ entries: { abc: "X", de: "FG" } });
  const glossary = await client.createGlossary("terms", "en", "de", entries);
  said.glossary = glossary;
  said.entries = (await client.getGlossaryEntries(glossary)).entries();
  said.listed = (await client.listGlossaries()).some((each) => each.glossaryId === glossary.glossaryId);
  said.term = await client.translateText("de", "en", "de", { glossary });
  await client.deleteGlossary(glossary);
  said.gone = await told(() => client.getGlossary(glossary.glossaryId));
  const from = join(folder, "a.html"), to = join(folder, "made.html");
  writeFileSync(from, "<h1>abc de</h1><p>de</p>");
  // A stream, not a path: for a path deepl-node 1.28 closes the file twice, and the second time may close another one.
  said.status = await client.translateDocument(from, createWriteStream(to, { flags: "wx" }), "en", "de");
  said.document = readFileSync(to, "utf-8");
  writeFileSync(join(folder, "a.docx"), "PK no document");
  said.broken = await told(() => client.translateDocument(join(folder, "a.docx"), join(folder, "b.docx"), "en", "de"));
  said.usage = (await client.getUsage()).character;
  said.exceeded = await told(() => client.translateText("a".repeat(1000), "en", "de"));
  return said;
}

async function translate() {
  const { Translate } = await import("translate");
  const ask = new Translate({ engine: "libre", url: `${address}/translate`, key });
  return {
    one: await told(() => ask("abc de", { from: "en", to: "de" })),
    named: await told(() => ask("abc", { from: "English", to: "German" })),
    lines: await told(() => ask("abc\nde", "de")),
    wrong: await told(() => ask("abc", { from: "en", to: "fi" })),
    exceeded: await told(() => ask("a".repeat(1000), { from: "en", to: "de" })),
  };
}

console.log(JSON.stringify(await { deepl, translate }[package_]()));
