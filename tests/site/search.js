// Search a site as its pages do, by its own worker: node search.js SITE QUERY…
// Prints a JSON object: the locations that each query finds, best first.
const fs = require("fs");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const index = JSON.parse(fs.readFileSync(`${site}/search.json`, "utf8"));
const folder = `${site}/assets/javascripts/workers`;
const [file] = fs.readdirSync(folder).filter((name) => /^search\..*\.js$/.test(name));
const self = {};
vm.runInNewContext(fs.readFileSync(`${folder}/${file}`, "utf8"), { self, Intl });

async function send(data) {
  let answer = null;
  self.postMessage = (message) => {
    answer = message;
  };
  await self.onmessage({ data });
  return answer;
}

// The messages of the site's bundle: 0 has the index; 2 has a query, and 3 its answer.
async function main() {
  await send({ type: 0, data: index });
  const found = {};
  for (const input of queries) {
    const filter = {
      input: { type: "operator", data: { operator: "and", operands: [] } },
      aggregation: { input: [] },
    };
    const answer = await send({ type: 2, data: { input, filter } });
    found[input] = answer.data.items.map((item) => index.items[item.id].location);
  }
  console.log(JSON.stringify(found));
}

main();
