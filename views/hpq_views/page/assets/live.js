// The dashboard: polls for what changed.
const LIVE = document.body.dataset.live; // the path that answers polls
// The browser has the token as a cookie: a link that is copied from here has none.
if (location.search) history.replaceState(null, '', location.pathname + location.hash);
const clock = () => localTime(new Date());
const updated = el('span'); // outside the live region, which would be read aloud each second
$('#live').after(updated);
const say = (text) => {
  if ($('#live').textContent !== text) $('#live').textContent = text;
};
function reordered(old, { moved, to, of, best, ...columns }) {
  // The moved settings at their places, as the server says; the others keep their order.
  const gone = new Set(moved),
    stay = old.n.map((_, k) => k).filter((k) => !gone.has(old.n[k])),
    put = (some, news) => {
      const all = stay.map((k) => some[k]);
      to.forEach((place, k) => place >= 0 && all.splice(place, 0, news[k]));
      return all;
    };
  const found = { of, best, n: put(old.n, moved) };
  for (const name of Object.keys(columns)) found[name] = put(old[name], columns[name]);
  return found;
}
function apply(d, patch) {
  // `parts` are those that changed; the first screen waits, as `d.head`, until it is shown
  const t = d.trials,
    { trials, curves: news, standing, progress, objectives, ...parts } = patch;
  Object.assign(d, parts, objectives);
  trials.n.forEach((n, k) => {
    let i = d.at_of.get(n);
    if (i === undefined) {
      i = t.n.length;
      d.at_of.set(n, i);
    }
    for (const [name, column] of Object.entries(trials))
      if (name !== 'p') t[name][i] = column[k];
    for (const axis of d.axes)
      axis.values[i] = trials.p[d.names.indexOf(axis.name)]?.[k] ?? null;
  });
  const first = d.sets.get(d.first);
  if (first?.isFine) first.isOld = true;
  else for (const [n, curve] of unpack(news)) d.curve.set(n, curve);
  d.curves.per = Math.max(d.curves.per, news.per);
  for (const [what, orders] of Object.entries({ standing, progress }))
    for (const [name, now] of Object.entries(orders))
      d[what][name] = reordered(d[what][name], now);
  prepare(d);
  // The other metrics are read anew.
  for (const name of d.sets.keys()) if (name !== d.first) d.sets.get(name).isOld = true;
  keep();
  later();
  whenCalm(() => {
    const first = $(`.sweep[data-sweep="${d.id}"]`),
      now = partsOf(d.meta + (d.head ?? ''));
    if (d.head) morph(first, now);
    else morph($('.meta', first), $('.meta', now));
    const cells = d.row ? $$(`nav tr[data-of="${d.id}"] td`) : [];
    cells.forEach((cell, k) => {
      if (k) cell.textContent = d.row[k]; // the first one is a link
    });
    d.head = d.row = null;
    hideBlanks($('nav'));
    if (d !== S.d) return;
    for (const block of [table, failures, curves, panel]) (block.draw ?? block.mark)();
  }, d);
}
// Of a page without data.
const sent = $('#data') ? [] : [...$('#listing').children].map((part) => part.outerHTML);
function show(html) {
  // the parts that changed
  const old = [...$('#listing').children];
  [...partsOf(html).children].forEach((part, k) => {
    if (sent[k] === part.outerHTML) return;
    sent[k] = part.outerHTML;
    if (old[k].nodeName !== part.nodeName) return old[k].replaceWith(part);
    morphAttributes(old[k], part);
    morph(old[k], part);
    S.onPart?.(old[k]);
  });
}
const waiting = new Map(); // by sweep
function whenCalm(act, d) {
  // new rows would end a click or a selection of text that has begun
  clearTimeout(waiting.get(d));
  if ($(':active') || !getSelection().isCollapsed)
    waiting.set(d, setTimeout(whenCalm, 100, act, d));
  else act();
}
let due = 0,
  cost = 100;
function later() {
  // charts take a second of a busy machine: they may wait
  due ||= setTimeout(
    () => {
      const began = performance.now();
      due = 0;
      repaint();
      refresh('mark');
      cost = performance.now() - began;
    },
    300 + 4 * cost,
  );
}
const SOON = 1000,
  IDLE = 5000,
  AWAY = 30_000; // ms until the next poll
let wait = SOON,
  timer = 0,
  seen = clock();
async function poll() {
  let trouble = '',
    shown = [],
    patches = [];
  try {
    const ask = (d) =>
      fetch(`${d ? `/sweep/${d.id}/changes` : LIVE}?since=${(d ?? S).at ?? ''}`, {
        signal: AbortSignal.timeout(20_000),
      });
    const asked = S.d ? S.all : [null];
    let answers = await Promise.all(asked.map(ask));
    const gone = asked.filter((_, k) => answers[k].status === 404);
    if (gone.length === asked.length)
      return say('this sweep was removed; the page shows its last state');
    shown = asked.filter((d) => !gone.includes(d));
    answers = answers.filter((one) => one.status !== 404);
    if (gone.length) drop(gone);
    const answer = answers.find((one) => !one.ok && one.status !== 304) ?? answers[0];
    patches = await Promise.all(answers.map((one) => one.ok && one.json()));
    // Another start of the dashboard has another token.
    if (answer.status === 403)
      trouble = 'hpq dashboard refuses this page; open the link that it printed';
    else if (!answer.ok && answer.status !== 304)
      trouble = `the dashboard cannot read Redis (${(await answer.text()).trim()}); trying again`;
  } catch {
    trouble = 'the dashboard does not answer; trying again';
  }
  wait = trouble
    ? Math.min(2 * wait, AWAY)
    : patches.some(Boolean)
      ? SOON
      : Math.min(1.1 * wait, IDLE);
  clearTimeout(timer); // of a poll that began when the page was shown again
  timer = setTimeout(poll, document.hidden ? AWAY : wait);
  if (trouble) return say(`not live since ${seen}: ${trouble}`);
  seen = clock();
  if (patches.some((patch) => patch.reset)) return location.reload();
  patches.forEach((patch, k) => {
    if (!patch) return;
    updated.textContent = `updated ${seen}`;
    if (S.d) return apply(shown[k], patch);
    S.at = patch.at;
    whenCalm(() => {
      show(patch.html);
      mark();
      document.body.dataset.ready = 'yes';
    });
  });
  updated.textContent ||= `updated ${seen}`;
  say(['live', ...removed].join('; '));
}
const removed = []; // of several sweeps
function drop(gone) {
  for (const { id } of gone) {
    removed.push(`${id} was removed`);
    $(`nav tr[data-of="${id}"]`)?.remove();
    $(`.sweep[data-sweep="${id}"]`)?.remove();
  }
  S.all = S.all.filter((d) => !gone.includes(d));
  if (gone.includes(S.d)) {
    S.d = null;
    follow();
  }
  overlay.reset();
  later();
}
S.link = (n) => `/sweep/${S.d.id}/${n}`;
S.onMetric = async (d, name, trials) => {
  const query = new URLSearchParams([['metric', name], ...trials.map((n) => ['trial', n])]);
  const answer = await fetch(`/curves/${d.id}?${query}`);
  if (answer.ok) return answer.json();
};
S.onTable = (d, asked) => fetch(`/table/${d.id}?${asked}`);
const picked = new Set(); // sweeps of the list to compare
function mark() {
  // a new list has new boxes
  const link = $('#compare');
  ages();
  for (const box of $$('#listing [type=checkbox]')) box.checked = picked.has(box.value);
  if (link)
    Object.assign(link, {
      hidden: picked.size < 2,
      href: `/sweep/${[...picked].join('+')}`,
      textContent: `Compare ${picked.size} sweeps`,
    });
  find();
}
function find() {
  // the sweeps of the list with all words of the search
  const box = $('#find');
  if (!box) return;
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean),
    rows = $$('#listing tbody tr');
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  $('#found').textContent = words.length
    ? `${count(rows.filter((row) => !row.hidden).length)} of ${count(rows.length)}`
    : '';
}
$('#find')?.addEventListener('input', () => {
  find();
  address.write();
});
addEventListener('change', ({ target }) => {
  if (!target.matches('#listing [type=checkbox]')) return;
  picked[target.checked ? 'add' : 'delete'](target.value);
  mark();
  address.write();
});
if ($('#find')) {
  address.kept.push(
    {
      key: 'find',
      get: () => $('#find').value,
      set: (text) => {
        $('#find').value = text;
      },
    },
    {
      key: 'compare',
      get: () => wordsOf([...picked]),
      set: (text) => {
        picked.clear();
        for (const sid of listOf(text)) picked.add(sid);
      },
    },
  );
  address.take(address.read().words);
  mark();
}
document.addEventListener('visibilitychange', () => document.hidden || poll());
if (!$('#data')) poll(); // a list
