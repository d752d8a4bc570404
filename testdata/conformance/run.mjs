// Runs the suite, or the tests of some ids, against a proxy, and prints what became of each test as JSON.
import { runTests, getResults } from 'http-cache-tests/client/runner.mjs'
import suites from 'http-cache-tests/tests/index.mjs'
import fetch from 'node-fetch'

const [base, ...ids] = process.argv.slice(2)
const chosen = suites.map(suite => ({ ...suite, tests: suite.tests.filter(test => ids.length === 0 || ids.includes(test.id)) }))
await runTests(chosen, fetch, false, base)
const results = getResults()
const tests = suites.flatMap(suite => suite.tests).filter(test => test.id in results)
console.log(JSON.stringify(tests.map(test => ({
  id: test.id,
  kind: test.kind || 'required',
  needs: test.depends_on || [],
  passed: results[test.id] === true,
  why: results[test.id] === true ? '' : results[test.id][1]
}))))
