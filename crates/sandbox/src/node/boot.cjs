// Starts the runner inside the sandbox, before any file of the project can take part.
//
// The host mounts this file and its siblings read-only below /graphrun, outside the project's folder. One process runs the
// tests of one file, which the last argument names.
'use strict';

const fs = require('node:fs');
const { inspect } = require('node:util');
const { pathToFileURL } = require('node:url');
const { openSeal } = require('./seal.cjs');
const { declaredTests } = require('./declared.cjs');
const { lock, lockBuiltins } = require('./lock.cjs');
const { watchTests } = require('./watch.cjs');

// As they are now: tests mock functions of `node:fs`.
const { lstatSync, readFileSync } = fs;

/** The text of a regular file, or nothing where something else lies there. */
function readRegular(path) {
  try {
    return lstatSync(path).isFile() ? readFileSync(path, 'utf8') : null;
  } catch {
    return null;
  }
}

/** Makes sure that no process of this user, this one included, can open the memory of this process. */
function checkPrivate() {
  delete process.env.LD_PRELOAD;
  if (fs.statSync('/proc/self/mem').uid === process.getuid()) {
    throw new Error('the runner of tests cannot close its memory to other processes');
  }
}

function main() {
  checkPrivate();
  const emit = openSeal();
  const path = process.argv[2];
  const source = readRegular(path);
  let [isLoaded, hasExited] = [false, false];

  watchTests(emit, path, lock);
  emit('start', 'in_process');
  for (const name of declaredTests(source)) emit('expected', `${path}::${name}`);

  // Tests mock `process.exit`, so it is not locked. The code's own call ends the run without the last record.
  const { emit: send, exit } = process;
  process.exit = function (code) {
    hasExited = true;
    return Reflect.apply(exit, process, [code]);
  };
  // All listeners of the end have run when this returns.
  Object.defineProperty(process, 'emit', {
    __proto__: null,
    value(...args) {
      const result = Reflect.apply(send, this, args);
      if (args[0] === 'exit' && !hasExited) finish();
      return result;
    },
  });

  function finish() {
    if (!isLoaded) emit('uncollected', path, 'failed');
    if (readRegular(path) !== source) emit('tampered', `${path} changed while the tests ran`);
    emit('end', String(process.exitCode ?? 0));
  }

  process.argv.splice(1, 2, path);
  process.execArgv.length = 0;
  for (const name of Object.keys(require.cache)) delete require.cache[name];
  lockBuiltins();
  import(pathToFileURL(path).href).then(
    () => {
      isLoaded = true;
    },
    (error) => {
      // Thrown again for node to show it with its place in the source.
      process.removeAllListeners('uncaughtException');
      setImmediate(() => {
        throw error;
      });
    },
  );
}

try {
  main();
} catch (error) {
  // No code of the project has run: the fault is the runner's.
  console.log(inspect(error));
  process.reallyExit(125);
}
