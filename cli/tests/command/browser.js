// Runs in a page beside the report, and shows the report in a frame of each width. What it finds is in the
// element `found`, as JSON in base64. `questions` has the keys to look up and the bytes to be refused.
"use strict";

const channels = (colour) => {
  const numbers = colour.match(/[\d.]+/g).map(Number);
  return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
};

// Relative luminance and contrast, of the Web Content Accessibility Guidelines 2.
function contrast(one, other) {
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).rgb.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// What is painted at a point behind the text: the topmost opaque shape or background.
function paintedBehind(document, text, x, y) {
  const style = (element) => document.defaultView.getComputedStyle(element);
  const inSvg = (element) => element.namespaceURI.endsWith("svg") && element.localName !== "svg";
  let stack = document.elementsFromPoint(x, y);
  if (!stack.includes(text)) { // scrolled out of its box
    stack = [];
    for (let element = text; element; element = element.parentElement) stack.push(element);
  }
  for (const element of stack) {
    if (inSvg(element) && (element.localName === "text" || style(element).fill === "none")) continue;
    const colour = inSvg(element) ? style(element).fill : style(element).backgroundColor;
    if (channels(colour).alpha === 1) return colour;
  }
  return "rgb(255, 255, 255)";
}

function faint(document) {
  const found = [];
  const least = { ratio: Infinity };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = (element, box, words) => {
    if (box.width === 0) return;
    const style = document.defaultView.getComputedStyle(element);
    const colour = element.localName === "text" ? style.fill : style.color;
    const behind = paintedBehind(document, element, box.x + box.width / 2, box.y + box.height / 2);
    const ratio = contrast(colour, behind);
    least.ratio = Math.min(least.ratio, ratio);
    if (ratio < 4.5) found.push(`${words.trim().slice(0, 40)}: ${colour} on ${behind}`);
  };
  let texts = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || ["script", "title"].includes(node.parentElement.localName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    seen(node.parentElement, range.getBoundingClientRect(), node.data);
    texts += 1;
  }
  for (const field of document.querySelectorAll("input")) {
    seen(field, field.getBoundingClientRect(), field.value);
  }
  return { found, texts, least: least.ratio };
}

// Elements that reach out of the window, but for those in a box that scrolls.
function wide(document) {
  const width = document.documentElement.clientWidth;
  const out = [...document.body.querySelectorAll("*")].filter((element) => {
    const box = element.getBoundingClientRect();
    const scrolls = element.parentElement.closest(".scroll");
    return !scrolls && !element.closest("svg svg, svg > *") && (box.right > width + 0.5 || box.left < -0.5);
  });
  return out.map((element) => `${element.localName}#${element.id}.${element.className}`);
}

function layout(frame) {
  const document = frame.contentDocument;
  for (const details of document.querySelectorAll("details")) details.open = true;
  const root = document.documentElement;
  frame.style.height = `${root.scrollHeight + 50}px`; // all of it can be pointed at
  const figures = [...document.querySelectorAll("figure")];
  const titled = (figure) =>
    figure.querySelector("svg > title")?.textContent && figure.querySelector("figcaption")?.textContent;
  return {
    width: root.clientWidth,
    scrollWidth: root.scrollWidth,
    dark: frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches,
    wide: wide(document),
    faint: faint(document),
    figures: figures.length,
    untitled: figures.filter((figure) => !titled(figure)).map((figure) => figure.id),
    requests: frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name),
  };
}

const decoded = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

function table(frame) {
  const document = frame.contentDocument;
  const script = document.createElement("script"); // a constant of a script is no property of its window
  script.textContent = "window.sampleTable = sampleTable;";
  document.body.append(script);
  const { open, lookUp } = frame.contentWindow.sampleTable;
  const bytes = document.getElementById("sample-bytes");
  const key = Uint8Array.from(bytes.dataset.hashKey.match(/../g), (byte) => parseInt(byte, 16));
  const tail = decoded(bytes.value);
  const sound = open(tail, key);
  const answers = questions.keys.map((key) => {
    const { inRange, maybe, dataBlock } = lookUp(sound, new TextEncoder().encode(key));
    return [inRange ? (maybe ? "maybe" : "no") : "outside", dataBlock?.number ?? null];
  });
  const separator = (entry) => new TextDecoder().decode(entry.separator);
  const blocks = sound.entries.map((entry) => [entry.offset, entry.bytes, separator(entry)]);
  const refusal = (bytes) => {
    try {
      open(bytes, key);
      return null;
    } catch (error) {
      return error.message;
    }
  };
  const flips = Array.from({ length: Math.ceil(tail.length / questions.every) }, (_, i) => {
    const flipped = tail.slice();
    flipped[i * questions.every] ^= 1 << (i % 8);
    return refusal(flipped);
  });
  const cuts = [0, 1, 127, 128, 5000, tail.length - 1].map((length) => refusal(tail.slice(-length || tail.length)));
  cuts[0] = refusal(new Uint8Array());
  return { answers, blocks, flips, cuts, forged: questions.forged.map((text) => refusal(decoded(text))) };
}

// What a reader sees: typed keys, buttons, changed bytes.
function controls(frame) {
  const part = (name) => frame.contentDocument.getElementById(`sample-${name}`);
  const set = (name, value) => {
    part(name).value = value;
    part(name).dispatchEvent(new Event("input"));
  };
  const shown = () => ({
    answer: part("answer").textContent,
    hash: part("hash").textContent,
    block: part("block").textContent,
    zeros: part("probes").querySelectorAll("tr .bad").length,
    probes: part("probes").querySelectorAll("tr").length,
    fault: part("fault").textContent,
    hidden: part("lookup").hidden,
  });
  const buttons = [...frame.contentDocument.querySelectorAll("#sample-table button")].map((button) => {
    button.click();
    return { key: part("key").value, ...shown() };
  });
  const whole = part("bytes").value;
  const broken = ["!", whole.slice(4), ""].map((text) => {
    set("bytes", text);
    set("key", "a"); // typing on must not fail either
    return shown();
  });
  set("bytes", whole);
  return { buttons, broken, mended: shown() };
}

addEventListener("load", () => {
  let found;
  try {
    const frames = [...document.querySelectorAll("iframe")];
    found = { layouts: frames.map(layout) };
    if (questions.keys) Object.assign(found, table(frames[0]), controls(frames[0]));
  } catch (error) {
    found = { error: `${error.message} ${error.stack}` };
  }
  const bytes = new TextEncoder().encode(JSON.stringify(found));
  document.getElementById("found").textContent =
    btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
});
