'use strict';
(() => {
const $ = id => document.getElementById(id);
const limit = 100, strip = 900, silence = 25000; // hosts; seconds; milliseconds
const names = {closed: 'Closed', open: 'Open', half_open: 'Half-open', forced_open: 'Forced open', forced_closed: 'Forced closed', away: 'Not closed'};
const local = () => performance.now() / 1000; // the browser's time of day is never compared with the server's

// Elements.

function el(tag, props, ...children) {
  const e = tag === 'svg' || tag === 'rect' ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) k in e && k !== 'className' && k !== 'role' && tag !== 'svg' && tag !== 'rect' ? e[k] = v : e.setAttribute(k === 'className' ? 'class' : k, v);
  e.append(...children.filter(c => c != null));
  return e;
}
function text(node, s) { if (node.textContent !== s) node.textContent = s; }
function cls(node, s) { if (node.getAttribute('class') !== s) node.setAttribute('class', s); }
function breakable(name) { return name.split(/(?<=\.)|(?=:)/).flatMap((part, i) => i ? [el('wbr'), part] : [part]); } // between words, not in them
function named(h) { return [h.scheme && h.scheme !== 'https' ? el('small', {}, h.scheme + '://') : '', ...breakable(h.host)]; }
function place(parent, nodes) { // moves as little as it can, so that focus stays
  let at = parent.firstChild;
  for (const n of nodes) {
    if (n === at) at = at.nextSibling; else parent.insertBefore(n, at);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

// Figures.

const grouped = new Intl.NumberFormat('en');
const count = n => grouped.format(n);
const percent = x => (x > 0 && x < .01 ? '<1' : Math.round(x * 100)) + ' %';
function span(s) { // a duration that counts
  s = Math.max(0, Math.floor(s));
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}
function rough(s) { return s < 60 ? span(s) : s < 3600 ? Math.floor(s / 60) + ' min' : span(s); }
function took(s) { return s === 0 ? '–' : s < .0995 ? (s * 1000).toPrecision(2) + ' ms' : s < .9995 ? Math.round(s * 1000) + ' ms' : s.toFixed(s < 10 ? 1 : 0) + ' s'; }
function figure(s) { return s === 0 ? 'off' : s < 1 ? +(s * 1000).toPrecision(3) + ' ms' : s < 120 ? +s.toPrecision(3) + ' s' : span(s).replace(/ 0 (s|min|h)$/, ''); }
const perSecond = r => r === 0 ? '0' : r < 10 ? r.toFixed(1) : count(Math.round(r));
function clock(iso, ago = 0) { // with its date, where the time alone would be taken for today's
  const at = new Date(iso), date = Math.abs(ago) < 86400 ? '' : at.toLocaleDateString([], {day: 'numeric', month: 'short'}) + ', ';
  return date + at.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false});
}

// A time of day, and which day and zone for whoever asks; and text with such times in it.

function when(iso, ago = 0) { return iso ? el('time', {dateTime: new Date(iso).toISOString(), title: new Date(iso).toString()}, clock(iso, ago)) : 'it is known'; }
function fill(node, ...parts) { // which is left alone where it says the same
  parts = parts.filter(p => p != null);
  const s = parts.map(p => p.textContent === undefined ? p : p.textContent).join('');
  if (node.textContent !== s) node.replaceChildren(...parts);
}
function joined(list, by) { return list.filter(Boolean).flatMap((x, i) => i ? [by, x] : [x]).flat(); }

// What the server said last. Ages are its own, and go on by our stopwatch, which stands
// while the connection is lost: what it would count then, nobody knows.

let doc = null, docAt = 0, instance = '', transitions = [], lastID = 0;
let whole = 0; // since when no transition is missing, unless the oldest is not the first there was
const stopwatch = () => mode === 'lost' ? lostAt : local(), lost = () => local() - stopwatch();
const since = () => Math.max(0, stopwatch() - docAt), age = t => t.ago_seconds + Math.max(0, stopwatch() - t.got);
const staleFor = s => s.ago_seconds + s.age_seconds + since();
const samples = new Map(); // counters of the last ten seconds, for rates

function sample(h) {
  const f = h.fallbacks, r = h.refusals, at = Date.parse(doc.at) / 1000, all = samples.get(key(h)) || [];
  all.push({at, calls: h.calls.total, refused: r.breaker_open + r.breaker_half_open + r.bulkhead, stale: f.stale, degraded: f.degraded, fail_fast: f.fail_fast});
  while (all.length > 1 && all[1].at <= at - 10) all.shift();
  samples.set(key(h), all);
}
function rate(h, what) { // of the last ten seconds, or of those before the connection was lost; null: not known yet
  const all = samples.get(key(h));
  if (!all) return null;
  const now = Date.parse(doc.at) / 1000 + since();
  let first = all[0]; // as nothing is sent where nothing changes, a sample holds until the next one
  for (const s of all) if (s.at <= now - 10) first = s;
  const time = Math.min(10, now - first.at);
  return time < (all.length < 2 ? 3 : .9) ? null : Math.max(0, all[all.length - 1][what] - first[what]) / time;
}
const key = h => h.scheme + '://' + h.host;

// A bar that is a picture of the figure beside it.

function bar() { const fill = el('span'), b = el('span', {className: 'bar', 'aria-hidden': 'true'}, fill); b.fill = fill; return b; }
function setBar(b, part, whole, bad) {
  const x = whole > 0 ? Math.min(1, part / whole) : 0;
  b.hidden = !(whole > 0);
  const width = (x * 100).toFixed(1) + '%';
  if (b.fill.style.width !== width) b.fill.style.width = width;
  cls(b, 'bar' + (bad(x) ? x >= 1 || bad(x) === 2 ? ' bad' : ' warn' : ''));
}
const high = x => x >= 1 ? 2 : x >= .75 ? 1 : 0, low = x => x < .1 ? 2 : x < .3 ? 1 : 0;

// The details of a host: what it counts, live, and its configuration, which never changes.

function pairs(caption) {
  const body = el('tbody'), rows = new Map();
  const table = el('table', {}, el('caption', {}, caption), body);
  table.set = list => {
    const used = [];
    for (const [name, value] of list) {
      let row = rows.get(name);
      if (!row) { row = el('tr', {}, el('th', {scope: 'row'}, name), el('td')); rows.set(name, row); }
      text(row.lastChild, String(value));
      used.push(row);
    }
    place(body, used);
  };
  return table;
}
function details() {
  const window_ = pairs('Window'), calls = pairs('Calls'), faults = pairs('Timeouts and refusals'), instead = pairs('Retries and fallbacks');
  const config = el('div'), box = el('div', {className: 'detail'}, window_, calls, faults, instead, config);
  box.update = h => {
    const w = h.window, of = (n, threshold) => n + (threshold ? ' (limit ' + threshold + ')' : '');
    window_.set(!w ? [['Breaker', 'off']] : [
      ['Failed', of(w.failures + ' of ' + w.calls + ', ' + percent(w.failure_rate), w.failure_rate_threshold && percent(w.failure_rate_threshold))],
      ['Slow', of(w.slow + ' of ' + w.timed + ', ' + percent(w.slow_rate), w.slow_rate_threshold && percent(w.slow_rate_threshold))],
      ['In a row', of(w.consecutive_failures, w.consecutive_failures_threshold)],
      ['Failures', of(w.failures, w.failures_threshold)],
      ['Evidence', (w.seconds ? figure(w.seconds) + ', ' : '') + 'from ' + w.min_calls + ' calls'],
      ...h.failures.map(k => ['Lately: ' + k.what, k.count])]);
    const c = h.calls, l = h.latency;
    calls.set([['Calls', count(c.total)], ['Attempts', count(c.attempts)], ['Succeeded', count(c.success)], ['Failed', count(c.failure)], ['Neutral', count(c.neutral)],
      ['p50, p95, p99', [l.p50_seconds, l.p95_seconds, l.p99_seconds].map(took).join(', ')], ['Leaked bodies', count(h.leaks)]]);
    const t = h.timeouts, r = h.refusals;
    faults.set([['Queue', t.queue], ['Connect', t.connect], ['TLS', t.tls], ['Write', t.write], ['Response header', t.response_header], ['Body', t.body], ['Attempt', t.attempt], ['Total', t.total], ['Stream', t.stream],
      ['Refused, open', r.breaker_open], ['Refused, half-open', r.breaker_half_open], ['Refused, bulkhead full', r.bulkhead]].map(([k, v]) => [k, count(v)]));
    const f = h.fallbacks, b = h.retries.budget, kept = h.cache;
    instead.set([['Retries', count(h.retries.made)], ['Suppressed', count(h.retries.suppressed)], ['Budget', b ? b.left.toFixed(1) + ' of ' + b.limit : 'none'],
      ['Stale', count(f.stale)], ['Degraded', count(f.degraded)], ['Fail fast (503)', count(f.fail_fast)],
      ...(kept.hits + kept.collapsed + kept.validated + kept.refreshes ? [['Hits', count(kept.hits)], ['Waited for another', count(kept.collapsed)], ['Validated', count(kept.validated)], ['Refreshes', count(kept.refreshes)]] : []),
      ['Last stale', f.last_stale ? 'as of ' + clock(f.last_stale.as_of, staleFor(f.last_stale)) : 'never'], ['Shadow mode', h.shadow.join(', ') || 'none']]);
  };
  box.load = h => {
    if (box.loaded) return;
    box.loaded = true;
    fetch('hosts?limit=1&host=' + encodeURIComponent(h.host) + '&scheme=' + encodeURIComponent(h.scheme)).then(r => r.json()).then(d => {
      if (d.hosts.length) configuration(config, d.hosts[0]);
    }).catch(() => { box.loaded = false; });
  };
  return box;
}
function configuration(box, h) {
  const p = h.policy, t = p.timeout, b = p.bulkhead, k = p.breaker, r = p.retry, f = p.fallback, yes = x => x ? 'yes' : 'no', share = x => x ? percent(x) : 'off';
  const shadow = x => x.shadow ? [['Shadow', 'yes']] : [];
  const table = (caption, rows) => { const x = pairs(caption); x.set(rows); return x; };
  box.replaceWith(
    table('Configured: breaker', !k ? [['Breaker', 'off']] : [['Window', k.window_calls ? k.window_calls + ' calls' : figure(k.window_seconds)], ['Min calls', k.min_calls], ['Failure rate', share(k.failure_rate)], ['Slow call', figure(k.slow_call_seconds)], ['Slow rate', share(k.slow_rate)],
      ['Consecutive failures', k.consecutive_failures || 'off'], ['Failures in window', k.failures_in_window || 'off'], ['Open for', figure(k.open_for_seconds) + (k.open_for_max_seconds ? ' to ' + figure(k.open_for_max_seconds) : '')], ['Half-open probes', k.half_open_probes], ['Classify', yes(k.classify)], ...shadow(k)]),
    table('Configured: timeouts', [['Connect', figure(t.connect_seconds)], ['TLS handshake', figure(t.tls_handshake_seconds)], ['Read', figure(t.read_seconds)], ['Attempt', figure(t.attempt_seconds)], ['Total', figure(t.total_seconds)],
      ['Min throughput', t.min_throughput_bytes_per_second ? count(t.min_throughput_bytes_per_second) + ' B/s' : 'off'], ['Stream idle', figure(t.stream_idle_seconds)], ['Streaming', yes(p.streaming)], ...shadow(t)]),
    table('Configured: bulkhead and retry', [['Max concurrent', b.max_concurrent || 'off'], ['Max wait', figure(b.max_wait_seconds)], ['Body idle', figure(b.body_idle_seconds)], ...shadow(b), ['Max attempts', r.max_attempts || 1], ['Base to max', figure(r.base_seconds) + ' to ' + figure(r.max_seconds)],
      ['Statuses', r.statuses ? r.statuses.join(' ') : 'default'], ['Max Retry-After', figure(r.max_retry_after_seconds)], ['Budget', r.budget_ratio || r.budget_min_per_second ? percent(r.budget_ratio) + ' + ' + r.budget_min_per_second + '/s' : 'none'], ...(r.shadow ? [['Shadow, retry', 'yes']] : [])]),
    table('Configured: fallback', [['Max stale', figure(f.max_stale_seconds)], ['Stale limit', figure(f.stale_limit_seconds)], ['Degraded', yes(f.degraded)], ['Fail fast with 503', yes(f.fail_fast_503)], ...(f.after_seconds ? [['Served after', figure(f.after_seconds)]] : []), ['Cache', p.cache.off ? 'off' : p.cache.fresh ? (p.cache.shared ? 'reused, shared' : 'reused') : 'on'], ...shadow(f)]));
}

// A host that is not closed.

function card() {
  const badge = el('span', {className: 'badge'}), title = el('h3'), duration = el('b'), from = el('span');
  const why = el('span'), before = el('span'), ill = el('b', {className: 'ill'}), kinds = el('span', {className: 'kinds'});
  const forced = () => c.host.state.startsWith('forced'), limitOf = x => x ? ' (limit ' + percent(x) + ')' : '';
  const fact = (name, className) => { const dd = el('dd', {}, el('span'), el('small')); return {div: el('div', className ? {className} : {}, el('dt', {}, name), dd), value: dd.firstChild, more: dd.lastChild, dd}; };
  const next = fact('Next probe', 'next'), instead = fact('Served instead', 'instead'), refused = fact('Refused', 'refused'), permits = fact('Permits in use'), budget = fact('Retry budget'), latency = fact('Latency p50', 'latency');
  for (const f of [permits, budget]) { f.bar = bar(); f.value.after(f.bar); }
  const svg = el('svg', {viewBox: '0 0 ' + strip + ' 10', preserveAspectRatio: 'none', role: 'img'});
  const more = details(), open = el('details', {}, el('summary', {}, 'Counts and configuration'), more);
  const c = el('article', {}, el('div', {className: 'head'}, badge, title, el('span', {className: 'for'}, 'for ', duration, ' ', from)),
    el('p', {className: 'why'}, why, before, ill, kinds), el('dl', {className: 'facts'}, next.div, refused.div, instead.div, permits.div, budget.div, latency.div,
      el('div', {className: 'last'}, el('dt', {}, 'Last 15 minutes'), el('dd', {}, svg, el('small', {'aria-hidden': 'true'}, el('span', {}, '15 min ago'), el('span', {}, 'now'))))), open);
  open.addEventListener('toggle', () => { if (open.open) { more.update(c.host); more.load(c.host); } });

  c.update = h => {
    c.host = h;
    const shadow = h.shadow.includes('breaker');
    const w = h.window, over = h.state === 'forced_closed' && !!w && w.over;
    cls(c, 'card ' + h.state + (shadow ? ' shadowed' : '') + (over ? ' exposed' : ''));
    cls(badge, 'badge ' + (shadow ? 'shadow' : h.state));
    text(badge, names[h.state] + (shadow ? ', in shadow mode' : ''));
    if (!title.firstChild) {
      title.append(...named(h));
      title.setAttribute('aria-label', title.textContent);
      title.id = 'host ' + key(h); title.id = title.id.replace(/\s/g, '-');
      c.setAttribute('aria-labelledby', title.id);
      open.firstChild.setAttribute('aria-label', 'Counts and configuration of ' + h.host);
    }
    const t = h.trip;
    text(why, forced() ? (h.state === 'forced_open' ? 'Forced open by hand: every call is refused until it is reset.' : 'Forced closed by hand: every call goes through, whatever it comes to, until it is reset.')
      : sentence((h.cause || t || {}).text) + (t && h.cause && t.trigger.startsWith('probe_') ? ' Since then ' + because({evidence: t}) : '') + (shadow ? ' Calls go through all the same.' : ''));
    text(ill, !over ? '' : ' No protection: ' + [w.calls && w.failures && percent(w.failure_rate) + ' of ' + count(w.calls) + ' calls fail' + limitOf(w.failure_rate_threshold),
      w.slow && percent(w.slow_rate) + ' of ' + count(w.timed) + ' are slow' + limitOf(w.slow_rate_threshold), w.consecutive_failures_threshold && w.consecutive_failures && count(w.consecutive_failures) + ' failed in a row (limit ' + count(w.consecutive_failures_threshold) + ')'].filter(Boolean).join(', ') + '.');
    text(kinds, h.failures.length ? ' Last failures: ' + h.failures.slice(0, 4).map(k => k.count + ' × ' + k.what).join(', ') + '.' : '');

    const r = h.refusals;
    text(refused.value, count(r.breaker_open + r.breaker_half_open + r.bulkhead));
    const p = h.permits;
    text(permits.value, count(p.in_use) + (p.limit ? ' of ' + count(p.limit) : ''));
    text(permits.more, p.waiting ? count(p.waiting) + ' waiting' : '');
    setBar(permits.bar, p.in_use, p.limit, high);
    const b = h.retries.budget;
    text(budget.value, b ? b.left.toFixed(1) + ' of ' + b.limit : 'none');
    text(budget.more, h.retries.suppressed ? count(h.retries.suppressed) + ' suppressed' : '');
    setBar(budget.bar, b ? b.left : 0, b ? b.limit : 0, low);
    const l = h.latency;
    text(latency.value, took(l.p50_seconds));
    text(latency.more, l.attempts ? 'p95 ' + took(l.p95_seconds) + ', p99 ' + took(l.p99_seconds) : 'no call lately');
    if (open.open) more.update(h);
    c.tick();
  };
  c.tick = () => {
    const h = c.host, gone = since();
    const left = (h.closed_until_seconds || 0) + gone, in_ = (h.since_seconds || 0) + gone, byHand = forced();
    const away = h.closed_until && !byHand ? left : in_; // what is forced is so since then, and not since it left closed
    text(duration, span(away));
    fill(from, '(since ', when(h.closed_until && !byHand ? h.closed_until : h.since, away), ')');
    fill(before, ...(byHand && h.closed_until && left > in_ + .5 ? [' Not closed since ', when(h.closed_until, left), ': ' + (reason(h) || 'forced by hand') + '.'] : []));
    if (h.state === 'open') {
      const due = (h.probe_due_seconds || 0) - gone;
      text(next.value, due > 0 ? 'in ' + span(Math.ceil(due)) : 'with the next call');
      fill(next.more, 'at ', when(h.probe_due, due));
    } else if (h.state === 'half_open') {
      const idle = !h.permits.in_use && !rate(h, 'calls');
      text(next.value, idle ? 'with the next call' : 'now');
      fill(next.more, idle ? 'the wait is over' : 'probes are let through');
    } else {
      text(next.value, 'none');
      fill(next.more, 'until it is reset');
    }
    served(instead, h);
    const refusing = rate(h, 'refused');
    text(refused.more, (h.shadow.includes('breaker') ? 'would be; ' : '') + (refusing === null ? '\u00a0' : perSecond(refusing) + ' a second'));
  };
  c.draw = () => {
    const gap = lost(), end = strip - gap, marks = past(c.host), rects = [], said = [];
    for (const m of marks) m.ago += gap; // the strip goes on, as the time does
    let first = 'unknown';
    marks.forEach((m, i) => {
      const x = Math.max(0, strip - m.ago), to = i + 1 < marks.length ? strip - marks[i + 1].ago : end;
      if (to > x) rects.push(el('rect', {x: x.toFixed(1), y: tops[m.state], width: (to - x).toFixed(1), height: 10 - tops[m.state], class: m.state}));
      if (m.ago >= strip) first = names[m.state].toLowerCase(); else said.push(names[m.state].toLowerCase() + ' from ' + clock(m.at));
    });
    if (end < strip) said.push('unknown since the connection was lost');
    const few = said.slice(-6);
    if (said.length > 6) few.unshift(said.length - 6 + ' changes');
    svg.replaceChildren(...rects);
    svg.setAttribute('aria-label', 'The last 15 minutes: ' + [first, ...few].join(', then '));
  };
  return c;
}
// Why a host that was forced was not closed before: what opened it, where that was no hand.
function reason(h) { return (([h.cause, h.trip].find(e => e && e.trigger !== 'forced')) || {}).text; }
const tops = {closed: 7, forced_closed: 5, half_open: 3, away: 3, open: 0, forced_open: 0}; // a picture for those to whom colours say nothing

// What is served in place of answers now; what was is no more than history. Where calls
// go through, it is what they come to.
function served(fact, h) {
  const f = h.fallbacks, s = f.last_stale, [stale, degraded, fast, calls] = ['stale', 'degraded', 'fail_fast', 'calls'].map(k => rate(h, k));
  const fresh = s && (stale > 0 || stale === null && s.ago_seconds < 10), old = s && staleFor(s), most = f.max_stale_seconds;
  const now = [fresh && ['stale answers, as of ', when(s.as_of, old)], degraded > 0 && 'degraded answers', fast > 0 && '503, at once'].filter(Boolean);
  const through = h.state === 'forced_closed' || h.shadow.includes('breaker'), known = stale !== null;
  const w = h.window, failing = through && w && w.calls && w.failures ? percent(w.failure_rate) + (w.failures < w.calls ? ' of calls' : '') + ' fail' : '';
  const total = [f.stale && count(f.stale) + ' stale', f.degraded && count(f.degraded) + ' degraded', f.fail_fast && count(f.fail_fast) + ' × 503'].filter(Boolean).join(', ');
  const value = now.length ? joined(now, '; ') : failing && w.failures === w.calls ? ['Nothing: calls go through, ' + failing] : failing ? ['The answers themselves: ' + failing]
    : !known ? ['–'] : through ? ['The answers themselves'] : calls > 0 ? ['Nothing now: callers get errors'] : ['Nothing now'];
  if (typeof value[0] === 'string') value[0] = upper(value[0]);
  fill(fact.value, ...value);
  const none = !now.length && !through && known;
  text(fact.more, [fresh ? rough(old) + ' old' + (most ? ', up to ' + figure(most) + ' after its freshness' : '') : none && f.stale && s && most && old > most ? 'stored answers are older than Max stale (' + figure(most) + ')'
    : none && !calls ? 'no call lately' : none && f.stale ? 'no stored answer for these calls' : '', now.length && failing,
    !fresh && s && 'last stale ' + rough(s.ago_seconds + since()) + ' ago', total && total + ' so far'].filter(Boolean).join('; '));
}

// What is known of a host's past: each state and how long ago it began, the oldest
// first. Of what was before, nothing is.
function past(h) {
  const mine = transitions.filter(t => t.scheme === h.scheme && t.host === h.host), gone = since(), marks = [];
  const mark = (ago, state, at) => marks.push({ago, state, at: at || Date.parse(doc.at) - (ago - gone) * 1000});
  const began = (h.since_seconds || 0) + gone, left = h.closed_until ? h.closed_until_seconds + gone : 0;
  if (!mine.length) {
    if (left > began + 1) mark(left, 'away');
    mark(began, h.state);
    return marks;
  }
  const oldest = age(mine[0]), last = mine[mine.length - 1], known = transitions[0].id > 1 ? age(transitions[0]) : stopwatch() - whole;
  if (left > Math.max(oldest, known) + 1) mark(left, 'away'); // since then it was something else, by turns
  if (known > oldest) mark(known, mine[0].from);
  for (const t of mine) mark(age(t), t.to, t.at);
  if (h.state !== last.to && began < age(last)) mark(began, h.state); // half-open, as the wait is over and nobody has called
  return marks;
}
const upper = s => s ? s[0].toUpperCase() + s.slice(1) : '', sentence = s => s ? upper(s) + '.' : '';

// A host that is closed.

function row() {
  const button = el('button', {type: 'button', 'aria-expanded': 'false'}), td = () => { const x = el('td', {}, el('span'), bar()); x.value = x.firstChild; x.bar = x.lastChild; return x; };
  const failed = td(), slow = td(), permits = td(), budget = td(), latency = el('td'), calls = el('td');
  permits.className = budget.className = latency.className = 'wide';
  const p50 = el('span'), others = el('small');
  latency.append(p50, others);
  const badge = el('span', {className: 'badge shadow', hidden: true});
  const r = el('tr', {}, el('th', {scope: 'row'}, button, badge), failed, slow, permits, budget, latency, calls);
  const more = details(), extra = el('tr', {className: 'detail-row', hidden: true}, el('td', {colSpan: 7}, more));
  r.extra = extra;
  button.addEventListener('click', () => {
    extra.hidden = !extra.hidden;
    button.setAttribute('aria-expanded', String(!extra.hidden));
    if (!extra.hidden) { more.update(r.host); more.load(r.host); }
  });
  const near = (cell, part, whole, x, threshold, least) => {
    text(cell.value, whole ? count(part) + '/' + count(whole) + (part ? ' ' : '') : '–');
    if (whole && part) cell.value.append(el('small', {}, percent(x)));
    setBar(cell.bar, x, threshold, high);
    cls(cell.value, threshold && x >= threshold * .75 && whole >= least / 2 ? 'near' : '');
    cell.title = threshold ? 'opens at ' + percent(threshold) + ' of at least ' + least + ' calls' : '';
  };
  r.update = h => {
    r.host = h;
    if (!button.firstChild) { button.append(el('span', {}, ...named(h))); button.setAttribute('aria-label', button.textContent); } // a <wbr> is a space to a screen reader
    badge.hidden = !h.shadow.length;
    text(badge, h.shadow.length ? 'shadow: ' + h.shadow.join(', ') : '');
    const w = h.window;
    if (w) {
      near(failed, w.failures, w.calls, w.failure_rate, w.failure_rate_threshold, w.min_calls);
      near(slow, w.slow, w.timed, w.slow_rate, w.slow_rate_threshold, w.min_calls);
    } else { text(failed.value, 'no breaker'); text(slow.value, '–'); setBar(failed.bar, 0, 0, high); setBar(slow.bar, 0, 0, high); }
    const p = h.permits;
    text(permits.value, count(p.in_use) + (p.limit ? '/' + count(p.limit) : '') + (p.waiting ? ' +' + count(p.waiting) : ''));
    setBar(permits.bar, p.in_use + p.waiting, p.limit, high);
    const b = h.retries.budget;
    text(budget.value, b ? b.left.toFixed(1) + '/' + b.limit : '–');
    setBar(budget.bar, b ? b.left : 0, b ? b.limit : 0, low);
    const l = h.latency;
    text(p50, took(l.p50_seconds));
    text(others, l.attempts ? ' / ' + took(l.p95_seconds) + ' / ' + took(l.p99_seconds) : '');
    if (!extra.hidden) more.update(h);
    r.tick();
  };
  r.tick = () => { const x = rate(r.host, 'calls'); text(calls, x === null ? '–' : perSecond(x)); };
  return r;
}

// Drawing.

const cards = new Map(), rows = new Map();
let wanted = '', chosen = '', showAll = false;

function showHosts() {
  const s = doc.summary;
  $('filter').hidden = $('columns').hidden = false; // what is empty until now would look as if nothing were wrong
  text($('name'), doc.name);
  text($('verdict'), verdict(s));
  cls($('verdict'), downs(s) || s.exposed ? 'bad' : '');
  for (const b of states) { text(b.n, count(b.of(s))); b.classList.toggle('some', b.of(s) > 0); }
  const up = [], down = [], seen = new Set();
  for (const h of doc.hosts) {
    const k = key(h), closed = h.state === 'closed', map = closed ? rows : cards;
    seen.add(k);
    (closed ? cards : rows).delete(k);
    let node = map.get(k);
    if (!node) map.set(k, node = closed ? row() : card());
    sample(h);
    node.update(h);
    if (closed) down.push(node, node.extra); else up.push(node);
  }
  for (const map of [cards, rows, samples]) for (const k of map.keys()) if (!seen.has(k)) map.delete(k);
  place($('cards'), up);
  place(document.querySelector('#closed > tbody'), down);
  $('calm').hidden = up.length > 0;
  text($('calm'), chosen === 'closed' ? 'Not shown: the filter is on closed.' : wanted ? 'None of that name.' : 'None: every breaker that is shown is closed.');
  $('closed').hidden = down.length === 0;
  $('none').hidden = down.length > 0;
  $('more').hidden = doc.matched <= doc.hosts.length;
  text($('more'), 'These are ' + count(doc.hosts.length) + ' of ' + count(doc.matched) + ' hosts, those in trouble first. Filter by name to see others.');
  draw();
  head();
}
function draw() { for (const c of cards.values()) c.draw(); }
// A host is down as long as it is not closed again, also while it is probed: its state
// goes back and forth then, and a count of those that are refused would too.
const downs = s => s.refusing + s.probing;
const unprotected = s => s.forced_closed ? count(s.forced_closed) + ' forced closed, protection off' : '';
function verdict(s) {
  if (s.hosts === 0) return 'No host was called yet';
  const down = downs(s), of = ' of ' + count(s.hosts) + (s.hosts === 1 ? ' host ' : ' hosts '), shadow = s.hosts - s.closed - down - s.forced_closed;
  const how = [s.refusing && count(s.refusing) + ' refused', s.probing && count(s.probing) + ' probing'].filter(Boolean).join(', ');
  if (down) return count(down) + of + 'down: ' + how + (s.forced_closed ? '; ' + unprotected(s) : '');
  if (s.forced_closed) return count(s.forced_closed) + of + 'forced closed, protection off' + (s.exposed ? ': ' + count(s.exposed) + ' over a threshold' : '');
  if (shadow > 0) return count(shadow) + of + 'not closed, in shadow mode: calls go through';
  return s.hosts === 1 ? 'The one host is closed' : 'All ' + count(s.hosts) + ' hosts are closed';
}
function head() {
  const s = doc && doc.summary, says = mode === 'lost' ? 'disconnected' : s ? [downs(s) && count(downs(s)) + ' down', unprotected(s)].filter(Boolean).join(', ') : '';
  document.title = (says ? says + ' - ' : '') + 'watertight';
}

const items = new Map();
function item(t) {
  const time = el('time', {dateTime: t.at, title: t.at}), ago = el('span', {className: 'ago'});
  const reasons = el('p', {className: 'because'});
  const li = el('li', {className: t.to}, el('p', {}, time, ago),
    el('p', {}, el('strong', {}, ...breakable(t.host)), ' ', el('i', {}, names[t.from].toLowerCase() + ' →'), ' ', el('b', {className: 'badge ' + t.to}, names[t.to].toLowerCase()), t.shadow ? ' in shadow mode' : ''),
    reasons);
  li.fold = run => text(reasons, run > 1 ? 'Re-opened ' + run + ' times, last ' + clock(t.at, age(t)) + ': ' + because(t) : upper(because(t)));
  li.tick = () => { text(time, clock(t.at, age(t))); text(ago, rough(age(t)) + ' ago'); };
  return li;
}
function because(t) {
  switch (t.evidence.trigger) {
  case 'wait_over': return 'the wait is over, probes go out.';
  case 'probes_succeeded': return 'the probes succeeded.';
  case 'forced': return 'forced by hand.';
  case 'reset': return 'reset by hand.';
  case 'abandoned': return 'nobody calls this host any more.';
  case 'probe_failed': return 'a probe failed' + (t.evidence.last_failure ? ': ' + t.evidence.last_failure : '') + '.';
  case 'probe_slow': return 'a probe was slow.';
  }
  return t.evidence.text + '.';
}
// One line for all that a host was probed for in vain, by turns with what others did:
// an outage of minutes has dozens of such cycles, which would hide how it began.
function folded(list) {
  const all = list.map(t => ({t, run: 0})), probing = new Map(), runs = new Map();
  for (const e of all) {
    const k = key(e.t);
    if (e.t.to === 'half_open') probing.set(k, e);
    else if (e.t.from === 'half_open' && e.t.to === 'open') {
      const before = runs.get(k);
      e.run = before ? before.run + 1 : 1;
      e.probe = probing.get(k);
      if (before) for (const old of [before, before.probe, e.probe]) if (old) old.gone = true;
      runs.set(k, e);
    } else runs.delete(k);
  }
  return all.filter(e => !e.gone);
}
function showTransitions() {
  const mine = transitions.filter(t => !wanted || key(t).includes(wanted)), runs = folded(mine);
  const shown = showAll ? mine.map(t => ({t, run: 0})).reverse() : runs.slice(-20).reverse();
  const nodes = shown.map(({t, run}) => { let li = items.get(t.id); if (!li) items.set(t.id, li = item(t)); li.fold(run); li.tick(); return li; });
  for (const id of items.keys()) if (!transitions.length || id < transitions[0].id) items.delete(id);
  place($('transitions'), nodes.length ? nodes : [none]);
  $('all').hidden = mine.length <= 20 && runs.length === mine.length;
  text($('all'), showAll ? 'Show fewer' : 'Show all ' + mine.length);
}
const none = el('li', {className: 'nothing'}, el('p', {className: 'because'}, 'None so far.'));

let told = [], telling = 0;
function tell(t) { // one sentence for all that comes within 300 ms
  told.push(t);
  if (telling) return;
  telling = setTimeout(() => {
    const last = told[told.length - 1], many = told.length > 1 ? told.length + ' changes. ' : '';
    text($('news'), many + clock(last.at, age(last)) + ' ' + last.host + ' is ' + names[last.to].toLowerCase() + ': ' + because(last));
    told = []; telling = 0;
  }, 300);
}

// The connection: a stream, or where there is none, polling.

let source = null, mode = '', lostAt = 0, heard = 0, poller = 0, asked = 0;
function now(m, at = local()) { // at: when the connection was lost
  heard = local();
  if (m === mode) return;
  if (m === 'lost') lostAt = at;
  if (mode === 'lost') samples.clear(); // nobody knows what they were in between
  mode = m;
  cls(document.body, m);
  text($('link-state'), m === 'live' ? 'Live' : m === 'polling' ? 'Polling every 2 s' : 'Disconnected since ' + new Date(Date.now() - (local() - at) * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false}));
  text($('link-age'), '');
  if (m === 'lost' && !doc) text($('verdict'), 'Nothing is known: no answer');
  else if (!doc) text($('verdict'), 'Loading...');
  head();
}
const query = () => 'limit=' + limit + (chosen ? '&state=' + chosen : '') + (wanted ? '&q=' + encodeURIComponent(wanted) : '');

function take(d) { // and reports whether it is of another process than the last
  const other = doc ? d.instance !== doc.instance : instance && d.instance !== instance;
  doc = d; docAt = local();
  if (other) { samples.clear(); cards.clear(); rows.clear(); }
  showHosts();
  return other;
}
function add(list, from) {
  if (from !== instance) { instance = from; transitions = []; items.clear(); lastID = 0; whole = local(); }
  for (const t of list) {
    if (t.id <= lastID) continue;
    t.got = local();
    transitions.push(t);
    lastID = t.id;
  }
  transitions = transitions.slice(-256);
  showTransitions();
}
function addAll(d) {
  add(d.transitions, d.instance);
  whole = local() - d.since_seconds;
}
async function ask(path) {
  const r = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(8000)});
  if (!r.ok) throw new Error(path + ': ' + r.status);
  return r.json();
}
async function again() { // everything anew: at first, and when another process answers
  const d = await ask('transitions').catch(() => null);
  if (d) addAll(d);
  if (!d) now('lost');
  connect();
}
function connect() {
  if (source) source.close();
  clearTimeout(poller);
  if (!window.EventSource) return poll();
  const s = source = new EventSource('events?' + query() + (instance ? '&after=' + instance + '-' + lastID : ''));
  heard = local();
  s.onopen = () => now('live');
  s.onerror = () => {
    if (s !== source) return;
    if (s.readyState === EventSource.CLOSED) { source = null; asked = local(); poll(); } else now('lost');
  };
  s.addEventListener('hosts', e => { now('live'); if (take(JSON.parse(e.data))) again(); });
  s.addEventListener('alive', () => now('live'));
  s.addEventListener('transition', e => {
    now('live');
    const t = JSON.parse(e.data), from = e.lastEventId.split('-')[0];
    add([t], from);
    tell(t);
    draw();
  });
}
async function poll() {
  clearTimeout(poller);
  const q = query();
  try {
    const [d, t] = await Promise.all([ask('hosts?' + q), ask('transitions' + (instance ? '?after=' + instance + '-' + lastID : ''))]);
    if (source || q !== query()) return;
    now('polling');
    const known = instance;
    addAll(t);
    if (known === t.instance) t.transitions.slice(-3).forEach(tell);
    take(d);
  } catch { now('lost'); }
  if (source) return;
  poller = setTimeout(local() - asked > 15 ? () => connect() : poll, 2000);
}

// The filter.

const sum = (...keys) => s => keys.reduce((n, k) => n + s[k], 0);
const states = [['', 'All', sum('hosts')], ['open', 'Open', sum('open')], ['half_open', 'Half-open', sum('half_open')], ['forced_open,forced_closed', 'Forced', sum('forced_open', 'forced_closed')], ['closed', 'Closed', sum('closed')]].map(([state, name, of]) => {
  const n = el('b', {}, '–'), b = el('button', {type: 'button', className: state.startsWith('forced') ? 'forced' : state, 'aria-pressed': String(!state)}, name + ' ', n);
  b.n = n; b.of = of;
  b.addEventListener('click', () => {
    chosen = state;
    for (const other of states) other.setAttribute('aria-pressed', String(other === b));
    connect();
  });
  return b;
});
document.querySelector('.states').append(...states);
let typing = 0;
$('q').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => { wanted = $('q').value.trim().toLowerCase(); connect(); showTransitions(); }, 250);
});
$('all').addEventListener('click', () => { showAll = !showAll; showTransitions(); });

{ // the zone of all times, once
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || '', off = new Date().toLocaleTimeString('en', {timeZoneName: 'shortOffset'}).split(' ').pop();
  text($('zone'), 'Times in ' + (zone === 'UTC' ? zone : [zone, off.replace('GMT', 'UTC')].filter(Boolean).join(', ')));
}
text($('verdict'), 'Loading...');
setInterval(() => {
  if (doc) { for (const c of cards.values()) c.tick(); for (const r of rows.values()) r.tick(); }
  for (const li of items.values()) li.tick();
  if (mode === 'lost') text($('link-age'), ' (' + span(local() - lostAt) + ')' + (doc ? ': what is below is as of then' : ''));
  if (source && (local() - heard) * 1000 > silence) { now('lost', heard); connect(); }
}, 1000);
setInterval(() => { if (doc) draw(); }, 5000);
again();
})();
