// Makes what tests depend on impossible to replace: the built-in functions, `node:assert` and `node:test`.
//
// A project may add to them, mock the clock and the host's functions, and give its own objects and classes methods of the
// same names.
'use strict';

const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
const { ownKeys } = Reflect;

/** Properties that tests replace and put back. */
const MOCKED = new Set(['random', 'now', 'Date', 'prepareStackTrace', 'captureStackTrace', 'stackTraceLimit']);

/** Properties that the engine and node look up by themselves. */
const ENGINE = new Set(['constructor', 'then', 'next', 'exec']);

const SPACES = [
  Array, ArrayBuffer, BigInt, Boolean, DataView, Error, AggregateError, EvalError, RangeError, ReferenceError, SyntaxError,
  TypeError, URIError, Function, Map, Number, Object, Promise, Proxy, RegExp, Set, String, Symbol, WeakMap, WeakRef, WeakSet,
  getPrototypeOf(Int8Array), Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
  Float32Array, Float64Array, BigInt64Array, BigUint64Array, Atomics, JSON, Math, Reflect,
];  // prettier-ignore

/** Functions of the global object. */
const GLOBALS = [parseInt, parseFloat, isNaN, isFinite, decodeURI, decodeURIComponent, encodeURI, encodeURIComponent];

/** Classes whose methods make new objects by the property `constructor`. That of others is for everyone to replace. */
const COPIED = [Array, ArrayBuffer, Promise, RegExp, getPrototypeOf(Int8Array)];

/** Prototypes without a name of their own. */
const HIDDEN = [
  getPrototypeOf(function* () {}).prototype,
  getPrototypeOf(async function* () {}).prototype,
  getPrototypeOf(async () => {}),
  getPrototypeOf(function* () {}),
  getPrototypeOf(getPrototypeOf([][Symbol.iterator]())),
  getPrototypeOf([][Symbol.iterator]()),
  getPrototypeOf(new Map()[Symbol.iterator]()),
  getPrototypeOf(new Set()[Symbol.iterator]()),
  getPrototypeOf(''[Symbol.iterator]()),
  getPrototypeOf(''.matchAll(/x/g)),
];

/** Makes a property what it is for ever. */
function lockProperty(space, key) {
  const found = getOwnPropertyDescriptor(space, key);
  if (!found.configurable) {
    if (found.writable) defineProperty(space, key, { __proto__: null, writable: false });
  } else if ('value' in found) {
    defineProperty(space, key, { __proto__: null, writable: false, configurable: false });
  } else {
    defineProperty(space, key, { __proto__: null, configurable: false });
  }
}

/** Locks all properties of an object, except those that tests mock. */
function lock(space) {
  for (const key of ownKeys(space)) {
    if (!MOCKED.has(key)) lockProperty(space, key);
  }
}

/**
 * Locks a prototype. Its methods become accessors: assigning to a property that is not writable in a prototype fails, so
 * `error.name = 'x'` or `Sub.prototype.toString = f` would break.
 */
function lockPrototype({ prototype }) {
  for (const key of ownKeys(prototype)) {
    if (key === 'constructor' && !COPIED.includes(prototype.constructor)) continue;
    const { value, get, configurable } = getOwnPropertyDescriptor(prototype, key);
    // What the engine or node looks up by itself has to stay a value.
    if (get || !configurable || typeof key === 'symbol' || ENGINE.has(key)) {
      lockProperty(prototype, key);
      continue;
    }
    defineProperty(prototype, key, {
      __proto__: null,
      configurable: false,
      get: () => value,
      set(own) {
        if (this === prototype) throw new TypeError(`the built-in property ${String(key)} cannot be replaced`);
        defineProperty(this, key, { __proto__: null, value: own, writable: true, enumerable: true, configurable: true });
      },
    });
  }
}

/** Functions that show the inside of the runner. The permission model of node withholds the inspector and addons. */
function withhold(space, names) {
  for (const name of names) {
    const value = () => {
      throw new Error(`${name} is not available while tests run`);
    };
    if (name in space) defineProperty(space, name, { __proto__: null, value, configurable: false, writable: false });
  }
}

exports.lock = lock;

/** Locks all of it. Nothing of the project has run. */
exports.lockBuiltins = function lockBuiltins() {
  const assert = require('node:assert');
  const asyncHooks = require('node:async_hooks');
  const runner = require('node:test');

  for (const space of [assert, assert.strict, assert.AssertionError, runner, runner.test, runner.it, runner.describe]) lock(space);
  lock(assert.AssertionError.prototype);
  // The mocks of `node:test` are an object that is made when it is first used.
  lock(getPrototypeOf(runner.mock));
  lock(asyncHooks.AsyncResource.prototype);
  lockProperty(require('node:util'), 'isDeepStrictEqual');
  // Made when it is first used, with the functions that are withheld here.
  void asyncHooks.AsyncLocalStorage;
  withhold(asyncHooks, ['executionAsyncResource', 'createHook']);
  withhold(require('node:v8'), ['setFlagsFromString', 'getHeapSnapshot', 'writeHeapSnapshot']);
  withhold(require('node:module'), ['register', 'registerHooks']);
  withhold(process, ['setUncaughtExceptionCaptureCallback']);
  require('node:module').syncBuiltinESMExports();

  for (const space of SPACES) {
    if (space.prototype !== undefined) lockPrototype(space);
    lock(space);
  }
  for (const name of ownKeys(globalThis)) {
    if ([...SPACES, ...GLOBALS].includes(getOwnPropertyDescriptor(globalThis, name).value)) lockProperty(globalThis, name);
  }
  HIDDEN.forEach(lock);
};
