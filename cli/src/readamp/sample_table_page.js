// Shows what the lookup of the typed key does, in the page's elements.
"use strict";

(() => {
  const part = (name) => document.getElementById(`sample-${name}`);
  const text = (bytes) => new TextDecoder().decode(bytes);
  const grouped = (number) => number.toLocaleString("en");
  let table;

  function element(name, className, ...children) {
    const made = document.createElement(name);
    made.className = className;
    made.append(...children);
    return made;
  }

  // A byte as its bits, the highest first; the probed one is marked.
  function bits(byte, probed) {
    return Array.from({ length: 8 }, (_, place) => {
      const bit = 7 - place;
      return element(bit === probed ? "mark" : "span", "", String((byte >> bit) & 1));
    });
  }

  function showLookup() {
    if (table === undefined) return;
    const found = sampleTable.lookUp(table, new TextEncoder().encode(part("key").value));
    const { number, offset, bytes, separator } = found.dataBlock ?? {};
    const unset = found.probes.filter((probe) => !probe.isSet).length;
    part("answer").textContent = !found.inRange
      ? "No. The key is outside the key range: the table does not probe its filter."
      : found.maybe
        ? `Maybe. All ${found.probes.length} bits are 1: the table reads a data block.`
        : `No. ${unset} of ${found.probes.length} bits are 0: the table reads nothing.`;
    part("range").textContent = `${text(table.smallest)} to ${text(table.largest)}`;
    part("hash").textContent = `0x${found.hash.toString(16).padStart(16, "0")}`;
    part("block").textContent = found.dataBlock
      ? `block ${number + 1} of ${table.entries.length}: offset ${grouped(offset)}, ` +
        `${grouped(bytes)} bytes, separator ${text(separator)}`
      : "none: the key is behind the last separator";
    part("probes").replaceChildren(...found.probes.map((probe, i) =>
      element("tr", "",
        element("td", "number", String(i)),
        element("td", "number", grouped(probe.bit)),
        element("td", "number", grouped(probe.at)),
        element("td", "bits", ...bits(probe.byte, probe.bit & 7)),
        element("td", probe.isSet ? "number" : "number bad", probe.isSet ? "1" : "0"))));
  }

  function readBytes() {
    table = undefined;
    let fault = "";
    try {
      const decoded = Uint8Array.from(atob(part("bytes").value), (c) => c.charCodeAt(0));
      const key = part("bytes").dataset.hashKey.match(/../g).map((byte) => parseInt(byte, 16));
      table = sampleTable.open(decoded, Uint8Array.from(key));
      showLookup();
    } catch (error) {
      fault = `These bytes are refused. ${error.message}`;
    }
    part("fault").textContent = fault;
    part("lookup").hidden = table === undefined;
  }

  part("bytes").addEventListener("input", readBytes);
  part("key").addEventListener("input", showLookup);
  for (const button of document.querySelectorAll("#sample-table button")) {
    button.addEventListener("click", () => {
      part("key").value = button.dataset.key;
      showLookup();
    });
  }
  readBytes();
})();
