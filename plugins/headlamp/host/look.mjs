// Serves Headlamp's frontend with the built plugin and a cluster's API, and opens its pages in a real Chromium, one after
// the other: node look.mjs CHROMIUM HOST PLUGIN API < requests.json > answers.json
//   HOST     where vite.config.mjs has built the frontend
//   PLUGIN   the folder that has dist/main.js and package.json
//   API      the address of a `kubectl proxy`: whose user it is, the page's user is
//   request  {"path", "fill": {label: text}, "press": [names of buttons], "stored": what must then be in the browser's
//             storage, "texts": [what must be seen], "picture": a file}
//   answer   {"text": what was seen, "cpus": {CPU that is drawn: what it says of itself}, "missing": [texts],
//             "errors": [the page's], "outside": [addresses of others that it asked for]}
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import puppeteer from 'puppeteer-core';
import { preview } from 'vite';

const WAIT_MS = 30_000;
const [chromium, host, plugin, api] = process.argv.slice(2);
const requests = JSON.parse(readFileSync(0, 'utf8'));

// What Headlamp's own server answers the loader of plugins.
const files = {
  '/plugins': () => JSON.stringify([{ path: 'installed/raddle', type: 'shipped', name: 'raddle' }]),
  '/installed/raddle/main.js': () => readFileSync(join(plugin, 'dist/main.js')),
  '/installed/raddle/package.json': () => readFileSync(join(plugin, 'package.json')),
};
const plugins = {
  name: 'plugins',
  configurePreviewServer: server => {
    server.middlewares.use((request, response, next) => {
      const file = files[request.url.split('?')[0]];
      if (file) response.end(file());
      else next();
    });
  },
};
const server = await preview({
  configFile: false,
  logLevel: 'silent',
  root: host,
  build: { outDir: host },
  plugins: [plugins],
  preview: {
    host: '127.0.0.1',
    port: 0,
    proxy: {
      '/clusters/main': {
        target: api,
        ws: true,
        rewrite: path => path.slice('/clusters/main'.length),
      },
    },
  },
});
const origin = `http://127.0.0.1:${server.httpServer.address().port}`;

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 860 });

async function look({ path, fill = {}, press = [], stored = '', texts = [], picture }) {
  const [errors, outside] = [[], []];
  const failed = error => errors.push(error.message);
  const asked = request =>
    /^(data|blob):/.test(request.url()) ||
    request.url().startsWith(origin) ||
    outside.push(request.url());
  page.on('pageerror', failed).on('request', asked);
  await page.goto(origin + path, { waitUntil: 'domcontentloaded' });
  for (const [label, text] of Object.entries(fill)) {
    const field = await page.waitForSelector(`input[aria-label="${label}"]`, { timeout: WAIT_MS });
    await field.click({ count: 3 });
    await field.type(text);
  }
  for (const name of press)
    await (await page.waitForSelector(`aria/${name}[role="button"]`, { timeout: WAIT_MS })).click();
  const waits = [
    [wanted => JSON.stringify({ ...localStorage }).includes(wanted), stored],
    [wanted => wanted.every(text => document.body.innerText.includes(text)), texts],
  ];
  // What is missing is told in the answer.
  for (const [holds, wanted] of waits)
    await page.waitForFunction(holds, { timeout: WAIT_MS }, wanted).catch(() => {});
  const text = await page.evaluate(() => document.body.innerText);
  const cpus = await page.$$eval('[data-cpu]', found =>
    Object.fromEntries(found.map(one => [one.dataset.cpu, one.title]))
  );
  if (picture) await page.screenshot({ path: picture });
  page.off('pageerror', failed).off('request', asked);
  return { text, cpus, missing: texts.filter(one => !text.includes(one)), errors, outside };
}

const answers = [];
for (const request of requests) answers.push(await look(request));
await browser.close();
await server.close();
process.stdout.write(JSON.stringify(answers));
