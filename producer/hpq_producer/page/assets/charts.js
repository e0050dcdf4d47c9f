// Charts by plotly: results, slices, history, timeline.
const safe = (text) => String(text).replaceAll('<', '‹').replaceAll('>', '›').replaceAll('&', '＆').replaceAll('$', '＄').replaceAll('\n', '<br>');
function layout(height, more = {}) {
  const axis = { gridcolor: css('--line'), zeroline: false, linecolor: css('--line'), title: { font: { size: 12.5 } } };
  const { xaxis, yaxis, ...rest } = more;
  return { height, margin: { l: 64, r: 16, t: 8, b: 40 }, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', showlegend: false, hovermode: 'closest',
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css('--soft') }, dragmode: 'zoom',
    hoverlabel: { bgcolor: css('--ink'), bordercolor: css('--ink'), font: { color: css('--bg'), size: 12 }, align: 'left' },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest };
}
const dots = (some, x, y, more = {}) => ({ type: 'scatter', mode: 'markers', x: some.map(x), y: some.map(y), customdata: some, hoverinfo: 'text',
  text: some.map((i) => safe(about(i))), marker: { color: some.map((i) => colour(i, .9)), size: 7, line: { width: 0 } }, ...more });
const ring = (more = {}) => ({ type: 'scatter', mode: 'markers', x: [], y: [], hoverinfo: 'skip', cliponaxis: false,
  marker: { size: 13, color: 'rgba(0,0,0,0)', line: { width: 2.5, color: css('--ink') } }, ...more });
const inside = (i) => clamp(S.d.trials.y[i], S.d.low, S.d.high); // one beyond the scale lies on its edge
const metricAxis = () => ({ range: [S.d.low, S.d.high], title: { text: safe(S.d.metric), font: { size: 12.5 } } });

const decades = (values) => { const logs = values.filter((v) => v !== null).map(Math.log10).sort((a, b) => a - b), marks = logTicks(logs[0], logs.at(-1));
  return { tickvals: marks.map(([at]) => 10 ** at), ticktext: marks.map(([, text]) => text) }; };

const charts = {
  sorted() {
    const d = S.d, order = d.order, y = inside, x = (i) => d.rank.get(i) + 1;
    if (!order.length) return null;
    const isFew = order.length <= 200, middle = order[Math.floor(order.length / 2)];
    const out = d.trials.n.length - order.length;
    title('sorted', `${count(order.length)} ranked` + (out ? `; ${count(out)} without a result` : '') + (d.cut ? `; ${count(d.cut)} beyond the scale lie on its edge` : ''));
    const line = { ...dots(order, x, y), mode: isFew ? 'lines+markers' : 'lines', line: { color: css(isFew ? '--line' : '--accent'), width: isFew ? 1.5 : 2.5 } };
    if (!isFew) delete line.marker;
    const note = (i, text, ax) => ({ x: x(i), y: y(i), text: safe(text), showarrow: true, arrowhead: 0, arrowcolor: css('--soft'), ax, ay: d.max ? 26 : -26, font: { color: css('--ink'), size: 12 } });
    return { data: [line, ring()], mark: (i) => [[[x(i)], [y(i)]]], has: (i) => d.rank.has(i),
      layout: layout(210, { xaxis: { title: { text: 'rank' }, tickformat: ',d', range: [1 - order.length * .015 - .4, order.length * 1.015 + .4], showgrid: false }, yaxis: metricAxis(),
        annotations: [note(order[0], `#${d.trials.n[order[0]]}  ${num(d.trials.y[order[0]])}`, 50), ...(order.length > 3 ? [note(middle, `median ${num(d.trials.y[middle])}`, 30)] : [])] }) };
  },
  slices() {
    const d = S.d, axes = d.axes.filter((a) => new Set(a.values).size > 1).slice(0, 12);
    const most = Math.floor(1800 / Math.max(1, axes.length)), some = drawn(most, d.order);
    title('slices', axes.length ? `most important first; ${shown(some.length, d.order.length)}` : '');
    if (!axes.length || !some.length) return null;
    const wide = $('#slices-plot').clientWidth, columns = Math.max(1, Math.min(axes.length, 4, Math.floor(wide / 220))), rows = Math.ceil(axes.length / columns);
    const high = 150, gap = 62, whole = rows * (high + gap) - gap, all = layout(whole + 62, { margin: { l: 64, r: 16, t: 8, b: 54 } }), { xaxis, yaxis } = all, data = [], rings = [];
    axes.forEach((a, k) => {
      const id = k ? k + 1 : '', [row, column] = [Math.floor(k / columns), k % columns], next = random(k + 3), top = 1 - row * (high + gap) / whole;
      const distinct = [...new Set(a.values)].sort((v, w) => (v === null) - (w === null) || String(v).localeCompare(String(w), 'en', { numeric: true }));
      const names = (a.kind === 'category' || distinct.length < 7) && (a.kind === 'category' ? distinct : distinct.sort((v, w) => (v === null) - (w === null) || v - w));
      const jitter = names ? a.values.map(() => (next() - .5) * .35) : [], value = (i) => (names ? names.indexOf(a.values[i]) + jitter[i] : a.values[i]);
      const share = a.share === null ? '' : `  ${(100 * a.share).toFixed(0)}%`, log = !names && a.kind === 'log', on = { xaxis: 'x' + id, yaxis: 'y' + id };
      all['xaxis' + id] = { ...xaxis, anchor: 'y' + id, domain: [column / columns + .012, (column + 1) / columns - .012], type: log ? 'log' : 'linear', showgrid: false, nticks: 5, tickangle: 0,
        title: { text: `<b>${safe(a.name)}</b>${share}${log ? '  (log)' : ''}`, font: { size: 12.5, color: css('--ink') }, standoff: 8 },
        ...(names ? { tickvals: names.length > 12 ? [] : names.map((_, j) => j), ticktext: names.map((v) => safe(String(v === null ? 'none' : num(v)).slice(0, Math.max(3, Math.floor(34 / names.length))))), range: [-.6, names.length - .4] } : {}), ...(log ? decades(a.values) : {}) };
      all['yaxis' + id] = { ...yaxis, ...metricAxis(), anchor: 'x' + id, domain: [Math.max(0, top - high / whole), top], matches: k ? 'y' : undefined, showticklabels: !column, title: column ? undefined : metricAxis().title };
      data.push(dots(some, value, inside, { ...on, marker: { size: some.length > 200 ? 5 : 7, color: some.map((i) => colour(i, .8)) } }));
      rings.push({ trace: ring(on), value });
    });
    return { data: [...data, ...rings.map((r) => r.trace)], rings: rings.length, layout: all, has: (i) => d.rank.has(i), mark: (i) => rings.map((r) => [[r.value(i)], [inside(i)]]) };
  },
  history() {
    const d = S.d, t = d.trials, by = $('[data-by][aria-pressed=true]').dataset.by, some = S.kept.filter(d.isRanked);
    const end = (i) => (t.start[i] ?? 0) + t.took[i], done = [...some].sort((a, b) => (by === 'n' ? a - b : end(a) - end(b)));
    let [sum, top] = [0, null];
    const at = new Map(done.map((i) => [i, by === 'n' ? t.n[i] : by === 't' ? end(i) / 3600 : (sum += t.took[i]) / 3600])), best = { x: [], y: [] };
    for (const i of done) if (top === null || (d.max ? t.y[i] > top : t.y[i] < top)) { top = t.y[i]; best.x.push(at.get(i)); best.y.push(top); }
    if (!done.length) { title('history', ''); return null; }
    best.x.push(at.get(done.at(-1))); best.y.push(top);
    const points = drawn(MANY, done), x = (i) => at.get(i);
    title('history', `${points.length < done.length ? shown(points.length, done.length) + '; ' : ''}${best.x.length - 1} improvement${best.x.length === 2 ? '' : 's'}`);
    const step = { type: 'scatter', mode: 'lines', ...best, line: { shape: 'hv', color: css('--ink'), width: 2 }, hoverinfo: 'skip' };
    return { data: [step, dots(points, x, inside, { marker: { size: 6, color: points.map((i) => colour(i, .75)) } }), ring()], has: (i) => at.has(i), mark: (i) => [[[x(i)], [inside(i)]]],
      layout: layout(260, { yaxis: metricAxis(), xaxis: { tickformat: by === 'n' ? ',d' : '', title: { text: { n: 'trial', t: 'hours since the sweep was created', g: 'hours of training, all workers' }[by] } } }) };
  },
  timeline() {
    const d = S.d, t = d.trials, some = S.kept.filter((i) => t.start[i] !== null && t.worker[i]), names = [...new Set(some.map((i) => t.worker[i]))].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    title('timeline', names.length ? `${names.length} worker${names.length > 1 ? 's' : ''}; latest attempts; solid finished, light pruned, grey failed, dark running` : '');
    if (!names.length) return null;
    const unit = Math.max(...some.map((i) => t.start[i] + t.took[i])) > 7200 ? 3600 : 60, row = new Map(names.map((name, k) => [name, k])), y = (i) => row.get(t.worker[i]);
    const high = clamp(names.length * 26, 60, 420), gap = { finished: ['--accent', 1], pruned: ['--accent', .35], failed: ['--soft', .7], cancelled: ['--soft', .4], running: ['--ink', .8] };
    const end = (i) => (t.start[i] + t.took[i]) / unit, words = (i) => safe(`${about(i)}\n${time(t.took[i])}`), line = { ...ring(), mode: 'lines', line: { width: 3, color: css('--ink') } };
    const data = some.length > MANY ? [picture(some, names, unit, words, gap)] : Object.entries(gap).map(([state, [name, opacity]]) => {
      const mine = some.filter((i) => d.states[t.state[i]] === state), three = (f) => mine.flatMap(f);
      return { type: 'scatter', mode: 'lines', opacity, x: three((i) => [t.start[i] / unit, t.start[i] / unit + t.took[i] / unit * .97, null]), y: three((i) => [y(i), y(i), null]), customdata: three((i) => [i, i, null]),
        text: three((i) => [words(i), words(i), '']), hoverinfo: 'text', line: { width: clamp(high / names.length * .62, 3, 16), color: css(name), simplify: false } };
    });
    return { data: [...data, line], has: (i) => row.has(t.worker[i]) && t.start[i] !== null,
      mark: (i) => [[[t.start[i] / unit, end(i)], [y(i), y(i)].map((v) => v - .42)]],
      layout: layout(high + 56, { margin: { l: 20 + 7 * Math.min(24, Math.max(...names.map((n) => n.length))), r: 16, t: 8, b: 40 }, xaxis: { title: { text: unit === 60 ? 'minutes' : 'hours' } }, yaxis: { tickvals: names.map((_, k) => k), ticktext: names.map((n) => safe(n.length > 24 ? '…' + n.slice(-23) : n)), range: [names.length - .4, -.6], showgrid: false } }) };
  },
};
function picture(some, names, unit, words, gap) { // thousands of attempts as one image: a cell shows the attempt that fills most of it
  const t = S.d.trials, columns = 700, last = Math.max(...some.map((i) => t.start[i] + t.took[i])), cells = names.map(() => Array(columns).fill(null)), kinds = Object.keys(gap);
  for (const i of some) for (let k = Math.floor(t.start[i] / last * columns); k <= Math.min(columns - 1, (t.start[i] + t.took[i]) / last * columns); k++) cells[names.indexOf(t.worker[i])][k] = i;
  const mix = (name, part) => { const rgb = (v) => [1, 3, 5].map((at) => parseInt(v.slice(at, at + 2), 16)), [a, b] = [css(name), css('--card')].map(rgb); return `rgb(${a.map((v, k) => Math.round(v * part + b[k] * (1 - part)))})`; };
  const scale = kinds.flatMap((kind, k) => [k, k + 1].map((at) => [at / kinds.length, mix(...gap[kind])]));
  return { type: 'heatmap', x0: 0, dx: last / unit / columns, y: names.map((_, k) => k), ygap: 3, customdata: cells, z: cells.map((row) => row.map((i) => (i === null ? null : kinds.indexOf(S.d.states[t.state[i]]) + .5))),
    text: cells.map((row) => row.map((i) => (i === null ? '' : words(i)))), hoverinfo: 'text', hoverongaps: false, zmin: 0, zmax: kinds.length, colorscale: scale, showscale: false };
}
const OPTIONS = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ['select2d', 'lasso2d', 'autoScale2d'] };
for (const [name, build] of Object.entries(charts)) {
  const box = $(`#${name}-plot`), block = { reset: () => { block.last = null; } }, isAbove = ['sorted', 'slices'].includes(name);
  block.draw = () => {
    if (!window.Plotly || (isAbove && block.last)) return; // the brush filters what is below it
    const figure = build();
    block.last = figure;
    box.classList.toggle('soft', !figure);
    if (!figure) { if (block.made) Plotly.purge(box); block.made = false; box.textContent = 'Nothing to show yet.'; return; }
    if (!block.made) box.textContent = '';
    block.rings = figure.rings ?? 1;
    Plotly.react(box, figure.data, figure.layout, OPTIONS);
    if (!block.made) box.on('plotly_click', (event) => { const i = event.points[0].customdata; if (Number.isInteger(i)) select(i); });
    block.made = true;
    block.mark();
  };
  block.mark = () => {
    if (!window.Plotly || !block.last) return;
    const marks = S.sel >= 0 && block.last.has(S.sel) ? block.last.mark(S.sel) : Array.from({ length: block.rings }, () => [[], []]), n = block.last.data.length;
    Plotly.restyle(box, { x: marks.map((m) => m[0]), y: marks.map((m) => m[1]) }, marks.map((_, k) => n - marks.length + k));
  };
  S.blocks.push(block);
}
for (const button of $$('[data-by]')) button.addEventListener('click', () => {
  for (const one of $$('[data-by]')) one.setAttribute('aria-pressed', String(one === button));
  refresh('draw');
});
