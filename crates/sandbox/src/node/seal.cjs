// The channel to the host: records in order, each authenticated by a key that only two closures hold.
//
// The host writes the key to standard input before any code of the project runs. A record is a line: its code, a space and
// its fields. The code covers the record and all records before it, so none can be dropped, added or moved. SHA-256 is
// written out here: `node:crypto` calls methods that the project can replace, and the key would be one of their arguments.
'use strict';

const fs = require('node:fs');

const RECORDS = 3;
const BLOCK = 64;

/** The first 64 primes' roots, as fractions of 32 bits (FIPS 180-4, 4.2.2 and 5.3.3). */
function constants() {
  const primes = [];
  for (let n = 2; primes.length < 64; n += 1) {
    if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  }
  const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
  return {
    start: new Uint32Array(primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)))),
    round: new Uint32Array(primes.map((prime) => fraction(Math.cbrt(prime)))),
  };
}

const { start: START, round: ROUND } = constants();

const rotate = (word, bits) => (word >>> bits) | (word << (32 - bits));

/** Takes one block of `bytes` into a state. Uses operators and indexes only: none of them can be replaced. */
function compress(state, bytes, offset) {
  const words = new Uint32Array(64);
  for (let i = 0; i < 16; i += 1) {
    const at = offset + 4 * i;
    words[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  }
  for (let i = 16; i < 64; i += 1) {
    const [x, y] = [words[i - 15], words[i - 2]];
    const low = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    const high = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
    words[i] = words[i - 16] + low + words[i - 7] + high;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i += 1) {
    const sum = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (h + sum + ((e & f) ^ (~e & g)) + ROUND[i] + words[i]) | 0;
    const second = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  const sums = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < 8; i += 1) state[i] += sums[i];
}

/** The digest of one block, which `state` has taken in, and the bytes after it. */
function digest(state, bytes) {
  const length = bytes.length;
  const padded = new Uint8Array((Math.floor((length + 8) / BLOCK) + 1) * BLOCK);
  for (let i = 0; i < length; i += 1) padded[i] = bytes[i];
  padded[length] = 0x80;
  const bits = (BLOCK + length) * 8;
  for (let i = 0; i < 4; i += 1) padded[padded.length - 1 - i] = bits >>> (8 * i);
  const own = new Uint32Array(8);
  for (let i = 0; i < 8; i += 1) own[i] = state[i];
  for (let offset = 0; offset < padded.length; offset += BLOCK) compress(own, padded, offset);
  const result = new Uint8Array(32);
  for (let i = 0; i < 32; i += 1) result[i] = own[i >>> 2] >>> (24 - 8 * (i & 3));
  return result;
}

/** Reads the key to its end and takes standard input away. */
function readKey() {
  const key = new Uint8Array(BLOCK);
  let length = 0;
  for (let read = -1; read !== 0; length += read) read = fs.readSync(0, key, length, BLOCK - length, null);
  fs.closeSync(0);
  fs.openSync('/dev/null', 'r');
  return key;
}

function keyed(key, pad) {
  const state = new Uint32Array(START);
  compress(state, key.map((byte) => byte ^ pad), 0);
  return state;
}

/** Takes over the channel, and returns the function that sends a record. */
exports.openSeal = function openSeal() {
  const key = readKey();
  const [inner, outer] = [keyed(key, 0x36), keyed(key, 0x5c)];
  key.fill(0);
  const { writeSync } = fs;
  const encode = TextEncoder.prototype.encode.bind(new TextEncoder());
  let last = '';

  return function emit(...fields) {
    let record = '';
    for (let i = 0; i < fields.length; i += 1) record += (i === 0 ? '' : '\t') + clean(fields[i]);
    const code = digest(outer, digest(inner, encode(last + record)));
    last = '';
    for (let i = 0; i < 32; i += 1) last += HEX[code[i] >>> 4] + HEX[code[i] & 15];
    const line = encode(`${last} ${record}\n`);
    for (let sent = 0; sent < line.length; ) sent += writeSync(RECORDS, line, sent, line.length - sent);
  };
};

const HEX = '0123456789abcdef';

/** A text without the characters that separate fields and records. */
function clean(text) {
  let cleaned = '';
  for (let i = 0; i < text.length; i += 1) cleaned += text[i] === '\t' || text[i] === '\n' ? ' ' : text[i];
  return cleaned;
}
