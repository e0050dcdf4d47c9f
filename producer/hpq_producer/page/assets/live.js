// The dashboard: patches from the server, and what it alone knows of a trial.
const LIVE = document.body.dataset.live;
const say = (text) => { $('#live').textContent = text; };
function apply(patch) {
  const d = S.d, t = d.trials;
  patch.trials.n.forEach((n, k) => {
    let i = d.at_of.get(n);
    if (i === undefined) { i = t.n.length; d.at_of.set(n, i); }
    for (const name of Object.keys(t)) if (name !== 'p') t[name][i] = patch.trials[name][k];
    for (const axis of d.axes) axis.values[i] = patch.trials.p[patch.names.indexOf(axis.name)]?.[k] ?? null;
    const points = patch.curves[n];
    if (!points?.length) return;
    const y = points.map(([, v]) => (v === null ? NaN : d.curves.log ? Math.log10(v) : v)), c = d.curves, known = y.filter(Number.isFinite);
    d.curve.set(n, { x: points.map(([x]) => x), y });
    if (d.curve.size === 1) [c.low, c.high] = [Infinity, -Infinity];
    Object.assign(c, { last: Math.max(c.last, points.at(-1)[0]), low: Math.min(c.low, ...known), high: Math.max(c.high, ...known) });
    if (!(c.high > c.low)) [c.low, c.high] = [c.low - .5, c.low + .5];
  });
  d.winner = patch.winner; d.scale = patch.scale;
  prepare(d);
  keep();
  later();
  say(`live, updated ${new Date().toLocaleTimeString()}`);
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
    repaint();
    refresh('mark');
    cost = performance.now() - began;
  }, 300 + 4 * cost);
}
let stream = null, lastId = null;
function connect() {
  stream?.close();
  if (document.hidden) return; // a browser allows six streams for all its tabs
  stream = new EventSource(`/events?topic=${encodeURIComponent(LIVE)}&after=${lastId ?? S.d?.event ?? ''}`);
  const on = (name, act) => stream.addEventListener(name, (event) => { lastId = event.lastEventId || lastId; act(event.data); });
  stream.onopen = () => say('live');
  stream.onerror = () => {
    say('connection lost; trying again');
    if (stream.readyState !== EventSource.CLOSED) return;
    say('hpq dashboard refuses this page; open the link that it printed'); // another start, another token
    setTimeout(connect, 1000);
  };
  on('patch', (data) => apply(JSON.parse(data)));
  on('html', (data) => whenCalm(() => { $('#listing').innerHTML = JSON.parse(data); document.body.dataset.ready = 'yes'; }));
  on('reset', () => location.reload());
  on('away', (why) => say(`Redis does not answer (${why}); trying again`));
  on('gone', () => { stream.close(); say('this sweep was removed; the page shows its last state'); });
}
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
if (LIVE) document.addEventListener('visibilitychange', connect);
addEventListener('pagehide', () => stream?.close());
if (LIVE && !$('#data')) connect(); // a list
