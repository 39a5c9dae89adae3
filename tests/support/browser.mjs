// Opens a page in a headless Chromium as four readers would; prints what it asked for, said and looks like, as JSON.
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , modules, url, folder] = process.argv;
const require = createRequire(path.join(modules, "package.json"));
const { default: puppeteer } = await import(pathToFileURL(require.resolve("puppeteer-core")));
const packed = path.join(modules, "node_modules/@sparticuz/chromium/bin");
const chromium = path.join(folder, "chromium");
fs.writeFileSync(chromium, zlib.brotliDecompressSync(fs.readFileSync(path.join(packed, "chromium.br"))), { mode: 0o755 });
const tar = path.join(folder, "libraries.tar");
fs.writeFileSync(tar, zlib.brotliDecompressSync(fs.readFileSync(path.join(packed, "al2023.tar.br"))));
execFileSync("tar", ["xf", tar, "-C", folder]);
const browser = await puppeteer.launch({
  executablePath: chromium,
  headless: "shell",
  args: ["--no-sandbox", "--disable-gpu", "--single-process", "--no-zygote"],
  env: { ...process.env, LD_LIBRARY_PATH: path.join(folder, "lib") },
});
const page = await browser.newPage();
const said = [], asked = new Set(), looks = {};
page.on("console", (one) => said.push(one.text()));
page.on("pageerror", (one) => said.push(String(one)));
page.on("dialog", async (one) => { said.push(one.message()); await one.dismiss(); });
page.on("request", (one) => asked.add(one.url()));
for (const [name, scheme, media, width] of [
  ["light", "light", "screen", 1200], ["dark", "dark", "screen", 1200],
  ["narrow", "light", "screen", 320], ["print", "dark", "print", 800],
]) {
  await page.setViewport({ width, height: 900 });
  const session = await page.createCDPSession();
  await session.send("Emulation.setEmulatedMedia", { media, features: [{ name: "prefers-color-scheme", value: scheme }] });
  await page.goto(url, { waitUntil: "load" });
  await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
  looks[name] = await page.evaluate(() => ({
    paper: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    bar: getComputedStyle(document.querySelector("figure svg path[style*='--go']")).fill,
    overflows: document.documentElement.scrollWidth > innerWidth,
    lost: [...document.querySelectorAll(".wide")].filter((one) => {
      one.scrollLeft = one.scrollWidth;
      return one.querySelector("td").getBoundingClientRect().left < 0;
    }).length,
    odd: document.querySelectorAll("script, img, iframe, object, embed, link, form, a").length,
  }));
}
await browser.close();
console.log(JSON.stringify({ said, asked: [...asked], looks }));
