// State, selection, filter and colors, which all blocks share.
const $ = (query, inside = document) => inside.querySelector(query);
const $$ = (query, inside = document) => [...inside.querySelectorAll(query)];
const S = { all: [], d: null, sel: -1, brush: new Map(), kept: [], blocks: [] };
const MANY = 500, BEST = 20, SAMPLE = 300;
const VIRIDIS = ['440154', '482878', '3e4a89', '31688e', '26828e', '1f9e89', '35b779', '6ece58', 'b5de2b', 'fde725']
  .map((c) => [0, 2, 4].map((at) => parseInt(c.slice(at, at + 2), 16)));

async function inflate(id) {
  const bytes = Uint8Array.from(atob($('#' + id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
}
const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
const isDark = () => !S.print && matchMedia('(prefers-color-scheme: dark)').matches;
const el = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text ?? '' }, more);
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
const quantile = (sorted, q) => sorted[clamp(Math.round(q * (sorted.length - 1)), 0, sorted.length - 1)];
const count = (n) => n.toLocaleString('en');

function num(v, digits = 4) { // a number as people write it
  if (typeof v !== 'number') return v ?? '';
  if (Number.isSafeInteger(v)) return String(v); // a seed is not rounded
  const size = Math.abs(v);
  return size && (size < 1e-4 || size >= 1e6) ? (+v.toPrecision(digits)).toExponential().replace('e+', 'e') : String(+v.toPrecision(digits));
}
function time(s) { // as the terminal's: 0.4s, 13s, 1m23s, 2h05m, 3d04h
  const two = (high, unit, low, name) => `${high}${unit}${String(low).padStart(2, '0')}${name}`, whole = Math.round(s), minutes = Math.round(s / 60), hours = Math.round(s / 3600);
  if (s < 0.95) return s ? Math.max(0.1, s).toFixed(1) + 's' : '0s';
  if (whole < 3600) return whole < 60 ? `${whole}s` : two(Math.floor(whole / 60), 'm', whole % 60, 's');
  return minutes < 1440 ? two(Math.floor(minutes / 60), 'h', minutes % 60, 'm') : two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}
function random(seed) { // mulberry32
  return () => { let t = (seed += 0x6d2b79f5); t = Math.imul(t ^ (t >>> 15), t | 1); t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32; };
}

function prepare(d) { // ranks, scale and curves from the columns
  const t = d.trials, sign = d.max ? -1 : 1;
  d.at_of = new Map(t.n.map((n, i) => [n, i]));
  d.isRanked = (i) => t.y[i] !== null && ['finished', 'pruned'].includes(d.states[t.state[i]]);
  d.order = t.n.map((_, i) => i).filter(d.isRanked);
  const sums = new Map(), set = (i) => Math.floor((t.n[i] - 1) / d.replicates); // as hpq best: replicates by their mean
  for (const i of d.order) { const [sum, of] = sums.get(set(i)) ?? [0, 0]; sums.set(set(i), [sum + t.y[i], of + 1]); }
  const mean = new Map(d.order.map((i) => [i, sums.get(set(i))[0] / sums.get(set(i))[1]]));
  d.order.sort((a, b) => sign * (mean.get(a) - mean.get(b)) || a - b);
  d.rank = new Map(d.order.map((i, rank) => [i, rank]));
  d.log = d.curves.log; // the server's choice, for every panel
  d.to = d.log ? (v) => (v > 0 ? Math.log10(v) : -Infinity) : (v) => v;
  d.from = d.log ? (v) => 10 ** v : (v) => v;
  const [low, high] = d.scale, pad = (high - low || Math.abs(high) || 1) * .04;
  d.low = low - pad; d.high = high + pad;
  for (const axis of d.axes) axis.values = t.p[d.axes.indexOf(axis)];
  if (d.curve) return;
  d.curve = unpack(d.curves);
  d.sets = new Map(Object.entries(d.more).map(([name, c]) => [name, { c, curve: unpack(c) }]));
  if (d.metric) d.sets.set(d.metric, { c: d.curves, curve: d.curve });
}
function unpack(c) { // curves by number
  const words = (text) => new Uint16Array(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)).buffer);
  const [x, y] = [words(c.x), words(c.y)];
  let at = 0;
  return new Map(c.n.map((n, i) => {
    const some = { x: [], y: [] };
    for (const end = at + c.len[i]; at < end; at++) {
      some.x.push(x[at] / 65534 * c.last);
      some.y.push(y[at] > 65534 ? NaN : c.low + y[at] / 65534 * (c.high - c.low));
    }
    return [n, some];
  }));
}
function color(i, alpha = 1) { // viridis by rank; the best has the most contrast
  const rank = S.d.rank.get(i);
  if (rank === undefined) return isDark() ? `rgba(150,155,165,${alpha})` : `rgba(130,134,140,${alpha})`;
  const worse = rank / Math.max(1, S.d.order.length - 1) * .93;
  const at = (isDark() ? 1 - worse : worse) * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const rgb = VIRIDIS[low].map((v, k) => Math.round(v + (at - low) * (VIRIDIS[low + 1][k] - v)));
  return `rgba(${rgb},${alpha})`;
}
function drawn(most = MANY, among = S.kept) { // all, or the best and a seeded sample; worst first
  const rank = (i) => S.d.rank.get(i) ?? Infinity, sorted = [...among].sort((a, b) => rank(b) - rank(a));
  if (sorted.length <= most) return sorted;
  const next = random(1), best = Math.min(BEST, most), rest = sorted.slice(0, -best);
  const few = Math.min(SAMPLE, most - best);
  for (let k = 0; k < few; k++) { const j = k + Math.floor(next() * (rest.length - k)); [rest[k], rest[j]] = [rest[j], rest[k]]; }
  const chosen = new Set([...rest.slice(0, few), ...sorted.slice(-best), ...(among.includes(S.sel) ? [S.sel] : [])]);
  return sorted.filter((i) => chosen.has(i));
}
const shown = (some, all = S.d.trials.n.length) => some === all ? `${count(all)} ${all === 1 ? 'trial' : 'trials'}` : `${count(some)} of ${count(all)} drawn`;
const title = (id, text) => { $(`#${id}-n`).textContent = text; };
function about(i) { // a trial in a few lines
  const t = S.d.trials, rank = S.d.rank.get(i), value = t.y[i] === null ? '' : `  ${S.d.metric} ${num(t.y[i])}`;
  const params = S.d.axes.slice(0, 8).map((a) => `${a.name} = ${num(a.values[i]) === '' ? 'none' : num(a.values[i])}`);
  return [`#${t.n[i]}  ${S.d.states[t.state[i]]}${value}${rank === undefined ? '' : `  rank ${rank + 1}`}`, ...params].join('\n');
}
function tip(event, i) {
  const box = $('#tip');
  box.hidden = i < 0;
  if (i < 0) return;
  box.textContent = about(i);
  box.style.left = clamp(event.clientX + 14, 0, innerWidth - box.offsetWidth - 8) + 'px';
  box.style.top = clamp(event.clientY + 14, 0, innerHeight - box.offsetHeight - 8) + 'px';
}

function refresh(what = 'draw') { for (const block of S.blocks) block[what]?.(); }
function select(i) {
  S.sel = i === S.sel ? -1 : i;
  const hash = S.sel < 0 ? S.d.id : `${S.d.id}/${S.d.trials.n[S.sel]}`;
  history.replaceState(null, '', '#' + hash);
  refresh('mark');
}
function keep() { // the trials inside every brush
  const all = S.d.trials.n.map((_, i) => i);
  S.kept = all.filter((i) => [...S.brush].every(([axis, [low, high]]) => {
    const at = S.axes?.[axis]?.place(i);
    return at !== null && at >= low && at <= high;
  }));
}
function filter() {
  keep();
  $('#unbrush').hidden = !S.brush.size;
  refresh('draw');
}
function follow() { // show what the URL's fragment names
  const [sid, n] = location.hash.slice(1).split('/');
  const d = S.all.find((one) => one.id === sid) ?? S.d ?? S.all[0];
  if (d !== S.d) { S.d = d; S.brush.clear(); S.sel = -1; S.blocks.forEach((b) => b.reset?.()); }
  for (const part of $$('[data-sweep]')) part.hidden = part.dataset.sweep !== d.id;
  $('#saved').textContent = $(`[data-sweep="${d.id}"] [data-saved]`)?.textContent ?? '';
  S.sel = d.at_of.get(+n) ?? -1;
  filter();
  refresh('mark');
}
