#!/bin/sh
# Make plot.min.js again: the marks of Observable Plot that the page uses and the parts of d3 that
# they need, as one script, with their licences beside it. `make assets` runs this; it needs npm.
set -eu
PLOT=0.6.17 D3=7.9.2 ESBUILD=0.28.2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit "@observablehq/plot@$PLOT" "d3@$D3" "esbuild@$ESBUILD"
cat > entry.js <<'ENTRY'
export {
  plot, barY, cell, dot, line, pointer, pointerX, ruleX, ruleY, text, tickY, tip
} from "@observablehq/plot";
ENTRY
npx esbuild entry.js --bundle --minify --format=iife --global-name=Plot --log-level=error \
  --legal-comments=none --banner:js="/* Observable Plot $PLOT with d3 $D3; plot.licenses.txt */" \
  --metafile=meta.json --outfile="$here/plot.min.js"
cat > licenses.js <<'SCRIPT'
const fs = require("fs");
const { inputs } = Object.values(require("./meta.json").outputs)[0];
const used = Object.entries(inputs).filter(([, own]) => own.bytesInOutput).map(([path]) => path);
const names = used.map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]);
for (const name of [...new Set(names.filter(Boolean))].sort()) {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(fs.readFileSync(`${folder}/package.json`, "utf8"));
  const file = fs.readdirSync(folder).find((own) => /^licen[sc]e/i.test(own));
  console.log(`${name} ${version} (${license})\n\n${fs.readFileSync(`${folder}/${file}`, "utf8").trim()}\n\n`);
}
SCRIPT
node licenses.js > "$here/plot.licenses.txt"
