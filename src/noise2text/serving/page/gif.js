"use strict";
// An animated GIF of the grid: one frame per step. GIF89a with one palette and LZW compression.

const MILLISECONDS_PER_FRAME = 200, MILLISECONDS_OF_LAST_FRAME = 2000, SHADES = 5; // bits per channel

// Bytes that grow; numbers of two bytes begin with the lower one.
function makeBytes() {
  const bytes = [];
  return {
    bytes,
    text: (text) => { for (const sign of text) bytes.push(sign.charCodeAt(0)); },
    short: (...values) => { for (const value of values) bytes.push(value & 255, value >> 8); },
  };
}

// LZW: each code stands for a sequence of pixels that came before; codes get longer as the table fills.
function compressPixels(pixels) {
  const CLEAR = 256, END = 257, LIMIT = 4096;
  const bytes = [];
  let buffer = 0, bits = 0, width = 9, table = new Map(), next = END + 1;
  const write = (code) => {
    buffer |= code << bits;
    bits += width;
    for (; bits >= 8; bits -= 8, buffer >>>= 8) bytes.push(buffer & 255);
  };
  write(CLEAR);
  let prefix = pixels[0];
  for (let at = 1; at < pixels.length; at++) {
    const key = prefix << 8 | pixels[at], known = table.get(key);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    write(prefix);
    if (next < LIMIT) {
      if (next === 1 << width) width++;
      table.set(key, next++);
    } else {
      write(CLEAR);
      [table, next, width] = [new Map(), END + 1, 9];
    }
    prefix = pixels[at];
  }
  write(prefix);
  if (next === 1 << width && width < 12) width++;
  write(END);
  if (bits) bytes.push(buffer & 255);
  return bytes;
}

// frames: [{ pixels: palette indices of whole lines, milliseconds, top: of its lines, or 0 }], each drawn over the ones
// before; palette: [[r, g, b]], at most 256.
function encodeGif(width, height, palette, frames) {
  const { bytes, text, short } = makeBytes();
  text("GIF89a");
  short(width, height);
  bytes.push(0xf7, 0, 0); // a global palette of 256 colours
  for (let at = 0; at < 256; at++) bytes.push(...(palette[at] || [0, 0, 0]));
  bytes.push(0x21, 0xff, 11);
  text("NETSCAPE2.0");
  bytes.push(3, 1, 0, 0, 0); // for ever
  for (const frame of frames) {
    bytes.push(0x21, 0xf9, 4, 4); // what is drawn stays
    short(Math.round(frame.milliseconds / 10));
    bytes.push(0, 0, 0x2c);
    short(0, frame.top || 0, width, frame.pixels.length / width);
    bytes.push(0, 8);
    const data = compressPixels(frame.pixels);
    for (let at = 0; at < data.length; at += 255) {
      const block = data.slice(at, at + 255);
      bytes.push(block.length, ...block);
    }
    bytes.push(0);
  }
  bytes.push(0x3b);
  return new Uint8Array(bytes);
}

// The most frequent colours of a picture, and a function from a picture to their indices.
function choosePalette(image) {
  const shade = (value) => value >> (8 - SHADES), counts = new Map();
  const keyOf = (data, at) => shade(data[at]) << 2 * SHADES | shade(data[at + 1]) << SHADES | shade(data[at + 2]);
  for (let at = 0; at < image.length; at += 4) {
    const key = keyOf(image, at), found = counts.get(key) || { count: 0, color: [...image.slice(at, at + 3)] };
    found.count++;
    counts.set(key, found);
  }
  const palette = [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 256).map(({ color }) => color);
  const nearest = new Map();
  function find(data, at) {
    const key = keyOf(data, at);
    if (!nearest.has(key)) {
      const distances = palette.map((color) => color.reduce((sum, value, n) => sum + (value - data[at + n]) ** 2, 0));
      nearest.set(key, distances.indexOf(Math.min(...distances)));
    }
    return nearest.get(key);
  }
  return { palette, index: (data) => Uint8Array.from({ length: data.length / 4 }, (_, at) => find(data, 4 * at)) };
}

async function paint(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: image.width, height: image.height });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, image.width, image.height);
}

// The picture of the results, growing step by step. It is painted once; a frame is the part of it that a step adds.
async function drawGif(models, results, view) {
  const { svg, rows } = drawPicture(models, results, view);
  const { width, height, data } = await paint(svg);
  const { palette, index } = choosePalette(data);
  const whole = index(data), shown = whole.slice(), paper = whole[width * height - 1];
  const fillRow = ({ y }, from) => {
    for (let at = y * width; at < (y + ROW) * width; at++) shown[at] = from ? from[at] : paper;
  };
  const steps = Array.from({ length: Math.max(0, ...rows.map((row) => row.step)) + 1 }, (_, n) => rows.filter((row) => row.step === n));
  for (const row of rows) if (row.step > 0) fillRow(row, null);
  const frames = steps.map((own, step) => {
    for (const row of own) fillRow(row, whole);
    const top = step ? Math.min(...own.map(({ y }) => y)) : 0;
    const bottom = step ? Math.max(...own.map(({ y }) => y)) + ROW : height;
    return {
      pixels: shown.slice(top * width, bottom * width),
      top,
      milliseconds: step < steps.length - 1 ? MILLISECONDS_PER_FRAME : MILLISECONDS_OF_LAST_FRAME,
    };
  });
  return encodeGif(width, height, palette, frames);
}
