// Sees each test of `node:test` begin and end, in place of the events that the project could send or hold back.
//
// All tests are made by one method of the class of the first one. There the function of a test is put into a witness, which
// reports that this function returned. The host believes a pass only where the witness and `node:test` report the same.
'use strict';

const { createHook } = require('node:async_hooks');
const runner = require('node:test');

const { apply } = Reflect;
const { defineProperty, getPrototypeOf } = Object;

/** The root of all tests. The first hook makes it. */
function makeRoot() {
  let root;
  const init = (id, type, trigger, resource) => {
    if (type === 'Test') root ??= resource;
  };
  const hook = createHook({ init }).enable();
  runner.after(() => {});
  hook.disable();
  const [test, reporter] = [root && getPrototypeOf(root), root?.reporter];
  const parts = [test?.createSubtest, test?.report, test?.getRunArgs, reporter?.fail];
  if (!parts.every((part) => typeof part === 'function')) {
    throw new Error(`the runner of tests does not know the test runner of node ${process.version}`);
  }
  return { root, test, reporter };
}

/** Puts a function in the place of a method, for ever. */
function replace(space, name, value) {
  defineProperty(space, name, { __proto__: null, value, writable: false, configurable: false });
}

/** Reports the tests of `file` with `emit`. */
exports.watchTests = function watchTests(emit, file, lock) {
  const { root, test, reporter } = makeRoot();
  const { createSubtest, report } = test;
  const { fail } = reporter;
  const ids = new WeakMap();
  const counts = new Map();
  let isReporting = false;

  const nameOf = (subtest) => {
    let name = String(subtest.name);
    for (let at = subtest.parent; at?.parent; at = at.parent) name = `${at.name} > ${name}`;
    return `${file}::${name}`;
  };

  const idOf = (name) => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return count === 1 ? name : `${name} (${count})`;
  };

  function witnessed(fn, id, name) {
    const returned = () => emit('returned', id, name);
    const raised = () => emit('raised', id, '');
    const settle = async (result) => {
      try {
        await result;
      } catch (error) {
        raised();
        throw error;
      }
      returned();
    };
    function body(context, done) {
      emit('phase', id, 'setup', 'passed');
      const called = (error, ...rest) => {
        (error ? raised : returned)();
        return apply(done, this, [error, ...rest]);
      };
      let result;
      try {
        result = apply(fn, this, done === undefined ? [context] : [context, called]);
      } catch (error) {
        raised();
        throw error;
      }
      if (done !== undefined) return result;
      if (typeof result?.then === 'function') return settle(result);
      returned();
      return result;
    }
    // A function with two parameters takes a callback.
    defineProperty(body, 'length', { __proto__: null, value: fn.length });
    return body;
  }

  replace(test, 'createSubtest', function (...args) {
    const subtest = apply(createSubtest, this, args);
    const name = nameOf(subtest);
    const id = idOf(name);
    ids.set(subtest, id);
    if (subtest.reportedType !== 'suite') {
      emit('collected', id, name);
      if (!subtest.skipped) replace(subtest, 'fn', witnessed(subtest.fn, id, name));
    }
    return subtest;
  });

  replace(test, 'report', function () {
    isReporting = true;
    apply(report, this, []);
    isReporting = false;
    const isSuite = this.reportedType === 'suite';
    const isPassed = this.passed && !this.skipped && !this.isTodo;
    // A suite that passes or whose tests fail adds nothing to what its tests report.
    if (isSuite && (isPassed || this.error?.failureType === 'subtestsFailed')) return;
    const kind = this.isTodo ? 'xfailed' : !this.passed ? 'failed' : this.skipped ? 'skipped' : 'passed';
    emit('phase', ids.get(this), 'call', kind);
    emit('phase', ids.get(this), 'teardown', kind);
  });

  // A hook of the whole file that fails is reported without a test.
  replace(reporter, 'fail', function (...args) {
    apply(fail, this, args);
    if (!isReporting) emit('phase', `${file}::hook`, 'teardown', 'failed');
  });

  for (const key of Reflect.ownKeys(getPrototypeOf(reporter))) {
    if (key !== 'fail') replace(reporter, key, reporter[key]);
  }
  replace(root, 'reporter', reporter);
  lock(test);
  // The methods of a context skip, plan and start tests.
  lock(getPrototypeOf(root.getRunArgs().ctx));
};
