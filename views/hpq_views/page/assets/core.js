// State, selection, filter and colors, which all blocks share.
const $ = (query, inside = document) => inside.querySelector(query);
const $$ = (query, inside = document) => [...inside.querySelectorAll(query)];
const S = { all: [], d: null, sel: -1, brush: new Map(), kept: [], blocks: [] };
const MANY = 500,
  BEST = 20,
  SAMPLE = 300;
// From the best to the worst rank: each at least 3.7:1 against both backgrounds, blue to orange
// for color-blind readers.
const RAMP = ['2878c8', '7069c8', '9a62bd', 'b8579c', 'cf5a66', 'c96a1a'].map((c) =>
  [0, 2, 4].map((at) => parseInt(c.slice(at, at + 2), 16)),
);

async function inflate(part) {
  const bytes = Uint8Array.from(atob(part.textContent), (c) => c.charCodeAt(0));
  return new Response(
    new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')),
  ).text();
}
const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
const isDark = () => !S.print && matchMedia('(prefers-color-scheme: dark)').matches;
const el = (tag, text, more = {}) =>
  Object.assign(document.createElement(tag), { textContent: text ?? '' }, more);
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
const quantile = (sorted, q) => {
  // between two values in proportion: the median of an even count is the mean of the middle two
  const at = q * (sorted.length - 1),
    low = Math.floor(at);
  return sorted[low] + (at > low ? (at - low) * (sorted[low + 1] - sorted[low]) : 0);
};
const count = (n) => n.toLocaleString('en');

const power = (v, digits) => (+v.toPrecision(digits)).toExponential().replace('e+', 'e');
function num(v, digits = 4) {
  // a number as people write it
  if (typeof v !== 'number') return v ?? '';
  if (Number.isSafeInteger(v)) return String(v); // a seed is not rounded
  const size = Math.abs(v);
  return size < 1e-4 || size >= 9999.5 ? power(v, digits) : String(+v.toPrecision(digits));
}
function measure(v) {
  // a metric with four digits, as the terminal's: 0.8360, 8621, 1.2e7
  const size = Math.abs(v);
  if (typeof v === 'number' && size >= 1e6) return power(v, 4);
  return typeof v === 'number' && size >= 1e-4 && size < 9999.5 ? v.toPrecision(4) : num(v);
}
function deviation(sd, mean) {
  // a standard deviation to the last digit of its mean, but with two to four digits
  if (!(sd >= 1e-4 && sd < 1e6)) return sd ? power(sd, 2) : num(sd);
  const shown = measure(mean),
    places = shown.includes('e') ? 0 : (shown.split('.')[1] ?? '').length,
    first = Math.floor(Math.log10(sd));
  return sd.toFixed(Math.max(0, Math.min(Math.max(places, 1 - first), 3 - first)));
}
function time(s) {
  // as the terminal's: 0.4s, 13s, 1m23s, 2h05m, 3d04h
  const two = (high, unit, low, name) => `${high}${unit}${String(low).padStart(2, '0')}${name}`,
    whole = Math.round(s),
    minutes = Math.round(s / 60),
    hours = Math.round(s / 3600);
  if (s < 0.95) return s ? Math.max(0.1, s).toFixed(1) + 's' : '0s';
  if (whole < 3600)
    return whole < 60 ? `${whole}s` : two(Math.floor(whole / 60), 'm', whole % 60, 's');
  return minutes < 1440
    ? two(Math.floor(minutes / 60), 'h', minutes % 60, 'm')
    : two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}
function random(seed) {
  // mulberry32
  return () => {
    let t = (seed += 0x6d2b79f5);
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const localTime = (date) => {
  // by the reader's clock with the distance to UTC, as the terminal's: 2027-01-31 08:00+01:00
  const two = (n) => String(Math.trunc(n)).padStart(2, '0'),
    east = -date.getTimezoneOffset(),
    local = new Date(date.getTime() + 60_000 * east).toISOString();
  const zone = `${east < 0 ? '-' : '+'}${two(Math.abs(east) / 60)}:${two(Math.abs(east) % 60)}`;
  return `${local.slice(0, 10)} ${local.slice(11, 16)}${zone}`;
};
const ages = (inside) => {
  for (const one of $$('time', inside)) one.textContent = localTime(new Date(one.dateTime));
};
const partsOf = (html) => {
  const { content } = el('template', '', { innerHTML: html }); // the server escapes every value
  ages(content);
  return content;
};
const stem = (name) =>
  name
    .replace(/(^|[^a-z])(train(ing)?|val(id(ation)?)?|test|eval)(?=[^a-z]|$)/i, '$1')
    .replace(/^[-_./: ]+|[-_./: ]+$/g, ''); // loss, of val_loss or loss/train
function logTicks(low, high) {
  // of logarithms: decades, and 2 and 5 between few
  const few = high - low < 2.2,
    found = [];
  for (let k = Math.floor(low); k <= high; k++)
    for (const m of few ? [1, 2, 5] : [1]) {
      const at = k + Math.log10(m);
      if (at >= low - 1e-9 && at <= high + 1e-9) found.push([at, num(m * 10 ** k)]);
    }
  return found.length > 1 && found.length < 9
    ? found
    : [low, high].map((v) => [v, num(10 ** v, 3)]);
}
function ticks(low, high, most = 5) {
  const raw = (high - low) / most,
    size = 10 ** Math.floor(Math.log10(raw)),
    step = size * ([1, 2, 5].find((k) => k * size >= raw) ?? 10);
  const found = [];
  for (
    let v = Math.ceil(low / step) * step;
    v <= high + step * 1e-9 && found.length < 20;
    v += step
  )
    found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}
const safe = (text) =>
  String(text)
    .replaceAll('<', '‹')
    .replaceAll('>', '›')
    .replaceAll('&', '＆')
    .replaceAll('$', '＄')
    .replaceAll('\n', '<br>');
function layout(height, more = {}) {
  const axis = {
    gridcolor: css('--line'),
    zeroline: false,
    linecolor: css('--line'),
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    height,
    margin: { l: 64, r: 16, t: 8, b: 40 },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    showlegend: false,
    hovermode: 'closest',
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css('--soft') },
    dragmode: 'zoom',
    hoverlabel: {
      bgcolor: css('--ink'),
      bordercolor: css('--ink'),
      font: { color: css('--bg'), size: 12 },
      align: 'left',
    },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}
function prepare(d) {
  // ranks, scale and curves from the columns
  const t = d.trials,
    shown = d.objectives?.find((one) => one.name === d.metric);
  if (shown) {
    // of several metrics, the one that the charts of one metric show
    const { max, scale, log, shares } = shown,
      k = d.objectives.indexOf(shown);
    Object.assign(d, { max, scale, log });
    t.y = t.all.map((values) => values[k]);
    for (const axis of d.axes) axis.share = shares[axis.name] ?? null;
  } else d.log = d.curves.log; // the server's choice, for every panel
  d.at_of = new Map(t.n.map((n, i) => [n, i]));
  d.isFinished = (i) => d.states[t.state[i]] === 'finished';
  place(d);
  Object.assign(d, scaled(d));
  d.measured = d.objectives
    ? d.objectives.map((one, k) => ({
        ...one,
        ...scaled(one),
        value: (i) => t.all[i][k],
        ...(d.replicates > 1 ? means(d, one.name) : {}),
      }))
    : [
        {
          ...d,
          name: d.metric,
          value: (i) => t.y[i],
          ...(d.replicates > 1 ? means(d, d.metric) : {}),
        },
      ];
  for (const [k, axis] of d.axes.entries()) axis.values ??= t.p[k];
  d.names ??= d.axes.map((axis) => axis.name); // the order in which patches have parameters
  if (shown) d.axes.sort((a, b) => b.share - a.share);
  if (d.curve) return;
  d.curve = unpack(d.curves);
  d.sets = new Map(Object.entries(d.more).map(([name, c]) => [name, { c, curve: unpack(c) }]));
  d.first = d.metric; // whose curves come with the trials
  if (d.metric) d.sets.set(d.metric, { c: d.curves, curve: d.curve });
}
const settingOf = (d, n) => Math.floor((n - 1) / d.replicates) + 1;
function place(d) {
  // The order of the settings is the server's. The first trial of a setting stands for it, with the
  // mean of its replicates; `t.group` numbers the settings.
  const t = d.trials,
    { n: firsts, of } = d.standing[d.metric],
    setting = (n) => settingOf(d, n),
    leads = new Map(),
    out = new Set();
  t.group = t.n.map(setting);
  t.group.forEach((group, i) => {
    if (!(t.n[leads.get(group)] < t.n[i])) leads.set(group, i);
  });
  d.lead = t.group.map((group) => leads.get(group));
  d.order = [];
  firsts.forEach((n, k) => {
    const i = leads.get(setting(n));
    if (i === undefined) return;
    d.order.push(i);
    if (k >= of) out.add(i);
  });
  d.ranked = of;
  d.rank = new Map(d.order.map((i, rank) => [i, rank]));
  d.isRanked = (i) => d.rank.has(i);
  d.isOut = (i) => out.has(d.lead[i]); // it does not meet the constraints
  t.rank = d.lead.map((i) => (d.rank.has(i) && !out.has(i) ? d.rank.get(i) + 1 : null));
  d.leadOf = (n) => leads.get(setting(n));
  const members = new Set(d.front?.map(([n]) => setting(n)));
  d.isFront = (i) => members.has(t.group[i]) && (d.replicates > 1 || d.isFinished(i));
  d.y = d.replicates > 1 ? t.n.map((_, i) => i).map(means(d, d.metric).value) : t.y;
}
function means(d, name) {
  // of replicates, at the first of each setting
  const { n, mean, sd, runs } = d.standing[name],
    at = new Map(n.map((first, k) => [settingOf(d, first), k])),
    of = (i) => (d.lead[i] === i ? at.get(d.trials.group[i]) : undefined);
  return {
    value: (i) => mean[of(i)] ?? null,
    spread: (i) => sd[of(i)] ?? 0,
    words: (i) => {
      const done = runs[of(i)],
        sign = done > 1 ? ` ± ${deviation(sd[of(i)], mean[of(i)])}` : '';
      return done ? `${sign} (${done} of ${d.replicates})` : '';
    },
  };
}
function scaled({ log, scale: [low, high] }) {
  const pad = (high - low || Math.abs(high) || 1) * 0.04;
  return {
    low: low - pad,
    high: high + pad,
    to: log ? (v) => (v > 0 ? Math.log10(v) : -Infinity) : (v) => v,
    from: log ? (v) => 10 ** v : (v) => v,
  };
}
function standing(i) {
  const d = S.d;
  if (d.isOut(i)) return 'infeasible';
  if (!d.front) return d.trials.rank[i] ? `rank ${count(d.trials.rank[i])} of ${count(d.ranked)}` : '';
  if (d.isFront(i)) return 'on the front';
  const by = d.trials.by[i];
  return by ? `dominated by #${by}` : '';
}
function unpack(c) {
  // curves by number; null is a gap
  const words = (text) =>
      new Uint16Array(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)).buffer),
    [x, y] = [words(c.x), words(c.y)],
    value = (place) => {
      const at = c.low + (place / 65534) * (c.high - c.low);
      return c.unit ? c.unit * Math.sinh(at) : at;
    };
  let at = 0;
  return new Map(
    c.n.map((n, i) => {
      const some = { x: [], y: [] };
      for (const end = at + c.len[i]; at < end; at++) {
        some.x.push(Math.round((x[at] / 65534) * c.last));
        some.y.push(y[at] > 65534 ? null : value(y[at]));
      }
      return [n, some];
    }),
  );
}
function color(i, alpha = 1) {
  const d = S.d,
    rank = d.front ? 0 : d.rank.get(d.lead[i]);
  if (!d.rank.has(d.lead[i]) || d.isOut(i) || (d.front && !d.isFront(i)))
    return isDark() ? `rgba(150,155,165,${alpha})` : `rgba(130,134,140,${alpha})`;
  return rampAt(rank / Math.max(1, S.d.order.length - 1), alpha);
}
function rampAt(share, alpha = 1) {
  // a color between the best's, 0, and the worst's, 1
  const at = share * (RAMP.length - 1),
    low = Math.min(Math.floor(at), RAMP.length - 2);
  const rgb = RAMP[low].map((v, k) => Math.round(v + (at - low) * (RAMP[low + 1][k] - v)));
  return `rgba(${rgb},${alpha})`;
}
function drawn(most = MANY, among = S.kept) {
  // all, or the best and a seeded sample; worst first
  const rank = (i) => S.d.rank.get(S.d.lead[i]) ?? Infinity,
    sorted = [...among].sort((a, b) => rank(b) - rank(a));
  if (sorted.length <= most) return sorted;
  const next = random(1),
    best = Math.min(BEST, most),
    rest = sorted.slice(0, -best);
  const few = Math.min(SAMPLE, most - best);
  for (let k = 0; k < few; k++) {
    const j = k + Math.floor(next() * (rest.length - k));
    [rest[k], rest[j]] = [rest[j], rest[k]];
  }
  const chosen = new Set([
    ...rest.slice(0, few),
    ...sorted.slice(-best),
    ...(among.includes(S.sel) ? [S.sel] : []),
  ]);
  return sorted.filter((i) => chosen.has(i));
}
const trialsOf = (all, what = 'trial') => `${count(all)} ${all === 1 ? what : `${what}s`}`;
const shown = (some, all, what = S.d.replicates > 1 ? 'setting' : 'trial') =>
  some === all
    ? trialsOf(all, what)
    : `${count(some)} of ${count(all)} drawn`;
const title = (id, text) => {
  $(`#${id}-n`).textContent = text;
};
function about(i) {
  // a trial in a few lines
  const t = S.d.trials,
    values = S.d.measured
      .filter((one) => one.name && one.value(i) !== null)
      .map((one) => `  ${one.name} ${measure(one.value(i))}${one.words?.(i) ?? ''}`);
  const params = S.d.axes
    .slice(0, 8)
    .map((a) => `${a.name} = ${num(a.values[i]) === '' ? 'none' : num(a.values[i])}`);
  return [
    `#${t.n[i]}  ${S.d.states[t.state[i]]}${values.join('')}  ${standing(i)}`.trimEnd(),
    ...params,
  ].join('\n');
}
function hint(event, parts) {
  // a box at the cursor; without parts, none
  const box = $('#tip') ?? document.body.appendChild(el('div', '', { id: 'tip' }));
  box.hidden = !parts;
  if (!parts) return;
  box.replaceChildren(...parts);
  box.style.left = clamp(event.clientX + 14, 0, innerWidth - box.offsetWidth - 8) + 'px';
  box.style.top = clamp(event.clientY + 14, 0, innerHeight - box.offsetHeight - 8) + 'px';
}
const tip = (event, i) => hint(event, i < 0 ? null : [about(i)]);

// What names an element among those beside it, in an old and a new state of the page.
const nameOf = (one) => {
  const link = one.nodeName === 'TR' || one.nodeName === 'FIGURE' ? $('a, [data-table]', one) : one;
  const { verb, key, n, of, table } = { ...link?.dataset, ...one.dataset };
  return [one.nodeName, one.id, link?.getAttribute?.('href'), verb, key, n, of, table].join(' ');
};
// Change the content of `old` to that of `now`: what stays keeps its focus, scroll and open state.
function morph(old, now) {
  const focused = document.activeElement;
  morphInside(old, now);
  if (focused === document.activeElement) return;
  const other = focused.closest('.acts') ? $('.acts button') : null; // of an action that ended
  (focused.isConnected ? focused : other)?.focus({ preventScroll: true });
}
function morphInside(old, now) {
  let next = old.firstChild;
  for (const part of [...now.childNodes]) {
    let same = next;
    while (same && nameOf(same) !== nameOf(part)) same = same.nextSibling;
    if (!same) {
      old.insertBefore(part, next);
      continue;
    }
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
    if (same.dataset?.table || same.isEqualNode(part)) continue; // a table was fetched
    if (same.nodeType !== Node.ELEMENT_NODE) same.data = part.data;
    else {
      morphAttributes(same, part);
      morphInside(same, part);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}
function morphAttributes(old, now) {
  for (const { name } of [...old.attributes])
    if (name !== 'open' && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes)
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
}

function fillMenu(menu, names, chosen, texts = {}) {
  if ([...menu.options].map((o) => o.value).join('\n') !== names.join('\n'))
    menu.replaceChildren(...names.map((m) => el('option', texts[m] ?? m, { value: m })));
  menu.value = chosen;
}

function refresh(what = 'draw') {
  for (const block of S.blocks) block[what]?.();
}
function select(i) {
  S.sel = i === S.sel ? -1 : i;
  address.write();
  refresh('mark');
}
function keep() {
  // the trials inside every brush that match the expression
  const all = S.d.trials.n.map((_, i) => i);
  S.kept = all.filter((i) =>
    (!S.d.only || S.d.only.has(S.d.trials.n[i])) &&
    [...S.brush].every(([axis, [low, high]]) => {
      const at = S.axes?.[axis]?.place(S.d.lead[i]);
      return at !== null && at >= low && at <= high;
    }),
  );
}
function hideBlanks(table) {
  // columns of sweeps side by side that have no value, as in the terminal's comparison
  const rows = table ? $$('tr', table).map((row) => [...row.cells]) : [];
  for (const [k, head] of (rows[0] ?? []).entries()) {
    const cells = rows.slice(1).map((row) => row[k]);
    for (const cell of [head, ...cells]) cell.hidden = !cells.some((one) => one.textContent);
  }
}
function filter() {
  keep();
  $('#unbrush').hidden = !S.brush.size;
  refresh('draw');
}
function follow() {
  // show what the URL's fragment names
  const { sid, n, words } = address.read(),
    d = S.all.find((one) => one.id === sid) ?? S.d ?? S.all[0],
    isOther = d !== S.d;
  if (isOther) {
    S.d = d;
    S.brush.clear();
    S.sel = -1;
    S.blocks.forEach((b) => b.reset?.());
  }
  for (const part of $$('[data-sweep]')) part.hidden = part.dataset.sweep !== d.id;
  hideBlanks($('nav'));
  $('#saved').textContent = $(`[data-sweep="${d.id}"] [data-saved]`)?.textContent ?? '';
  S.sel = d.at_of.get(n) ?? -1;
  // A link inside the page names a trial only, and changes nothing else.
  if (isOther || words.size) address.take(words);
  filter();
  refresh('mark');
}
