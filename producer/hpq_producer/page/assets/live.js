// The dashboard: polls for what changed, and what the server alone knows of a trial.
const LIVE = document.body.dataset.live; // the path that answers polls
const clock = () => new Date().toLocaleTimeString();
const say = (text) => { $('#live').textContent = text; };
function apply(patch) {
  const d = S.d, t = d.trials;
  patch.trials.n.forEach((n, k) => {
    let i = d.at_of.get(n);
    if (i === undefined) { i = t.n.length; d.at_of.set(n, i); }
    for (const name of Object.keys(t)) if (name !== 'p') t[name][i] = patch.trials[name][k];
    for (const axis of d.axes) axis.values[i] = patch.trials.p[patch.names.indexOf(axis.name)]?.[k] ?? null;
  });
  const more = patch.curves, c = d.curves;
  if (more.n.length) {
    const [low, high, last] = d.curve.size ? [c.low, c.high, c.last] : [Infinity, -Infinity, 0];
    for (const [n, curve] of unpack(more)) d.curve.set(n, curve);
    Object.assign(c, { low: Math.min(low, more.low), high: Math.max(high, more.high), last: Math.max(last, more.last), cut: c.cut || more.cut });
  }
  d.winner = patch.winner; d.scale = patch.scale; d.metrics = patch.metrics;
  prepare(d);
  keep();
  later();
  whenCalm(() => {
    $('.sweep').innerHTML = patch.head; // the server's template, which escapes every value
    ages();
    for (const block of [table, failures, curves, panel]) (block.draw ?? block.mark)();
  });
}
let waiting = 0;
function whenCalm(act) { // new rows would end a click or a selection of text that has begun
  clearTimeout(waiting);
  if ($(':active') || !getSelection().isCollapsed) waiting = setTimeout(whenCalm, 100, act);
  else act();
}
let due = 0, cost = 100;
function later() { // charts take a second of a busy machine: they may wait
  due ||= setTimeout(() => {
    const began = performance.now();
    due = 0;
    for (const name of [...S.d.sets.keys()]) if (name !== S.d.metric) S.d.sets.get(name).isOld = true; // read anew
    repaint();
    refresh('mark');
    cost = performance.now() - began;
  }, 300 + 4 * cost);
}
const SOON = 1000, IDLE = 5000, AWAY = 30_000; // ms until the next poll
let since = '', wait = SOON, timer = 0, seen = clock(), updated = seen;
async function poll() {
  let patch = null, trouble = '';
  try {
    const answer = await fetch(`${LIVE}?since=${since || (S.d?.at ?? '')}`, { signal: AbortSignal.timeout(20_000) });
    if (answer.status === 404) return say('this sweep was removed; the page shows its last state');
    if (answer.ok) patch = await answer.json();
    else if (answer.status === 403) trouble = 'hpq dashboard refuses this page; open the link that it printed'; // another start, another token
    else if (answer.status !== 304) trouble = `the dashboard cannot read Redis (${(await answer.text()).trim()}); trying again`;
  } catch { trouble = 'the dashboard does not answer; trying again'; }
  wait = trouble ? Math.min(2 * wait, AWAY) : patch ? SOON : Math.min(1.1 * wait, IDLE);
  clearTimeout(timer); // of a poll that began when the page was shown again
  timer = setTimeout(poll, document.hidden ? AWAY : wait);
  if (trouble) return say(`not live since ${seen}: ${trouble}`);
  seen = clock();
  if (patch?.reset) return location.reload();
  if (patch) {
    [since, updated] = [patch.at, seen];
    if (S.d) apply(patch);
    else whenCalm(() => { $('#listing').innerHTML = patch.html; document.body.dataset.ready = 'yes'; });
  }
  say(`live, updated ${updated}`);
}
S.onMetric = async (d, name) => {
  const answer = await fetch(`/curves/${d.id}?metric=${encodeURIComponent(name)}`);
  if (answer.ok) return answer.json();
};
let told = []; // a trial, and what the server said of it
S.onTrial = async (box) => { // attempts, artifacts and the end of the log
  const path = `/trial/${S.d.id}/${S.d.trials.n[S.sel]}`, more = el('div');
  const show = (html) => { more.innerHTML = html; more.lastElementChild.scrollTop = 1e9; };
  box.append(more);
  if (told[0] === path) show(told[1]); // the panel is made anew with each update
  const answer = await fetch(path);
  if (!answer.ok) return;
  const html = await answer.text();
  if (!more.hasChildNodes() || told[0] !== path || told[1] !== html) show(html); // another panel may have it
  told = [path, html];
};
document.addEventListener('visibilitychange', () => document.hidden || poll());
if (!$('#data')) poll(); // a list
