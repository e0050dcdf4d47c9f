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
const place = (i) => S.d.to(S.d.trials.y[i]); // on the metric's axis
const isBeyond = (i) => place(i) < S.d.low || place(i) > S.d.high;
const symbol = (i) => (!S.d.rank.has(i) ? 'x' : !isBeyond(i) ? 'circle' : place(i) < S.d.low ? 'triangle-down' : 'triangle-up');
const dots = (some, x, y, size = 7, more = {}) => ({ type: 'scatter', mode: 'markers', x: some.map(x), y: some.map(y), customdata: some, hoverinfo: 'text', cliponaxis: false,
  text: some.map((i) => safe(about(i))), marker: { color: some.map((i) => color(i, .85)), symbol: some.map(symbol), size: some.map((i) => (isBeyond(i) ? size + 4 : size)), line: { width: 0 } }, ...more });
const ring = (more = {}) => ({ type: 'scatter', mode: 'markers', x: [], y: [], hoverinfo: 'skip', cliponaxis: false,
  marker: { size: 13, color: 'rgba(0,0,0,0)', line: { width: 2.5, color: css('--ink') } }, ...more });
const inside = (i) => S.d.from(S.d.rank.has(i) ? clamp(place(i), S.d.low, S.d.high) : S.d.max ? S.d.low : S.d.high); // beyond the scale: at its edge
function beyond() { // what the scale leaves out, which each chart must say
  const far = S.d.order.filter(isBeyond).map((i) => S.d.trials.y[i]).sort((a, b) => a - b);
  return far.length ? `; ${count(far.length)} beyond the scale at its edge (${[...new Set([far[0], far.at(-1)])].map((v) => num(v)).join(' to ')})` : '';
}
const whole = (n) => ({ tickformat: ',d', dtick: n < 10 ? 1 : undefined });
const metricAxis = (room = 0) => { // by the server's scale
  const d = S.d, range = d.max ? [d.low, d.high + room] : [d.low - room, d.high], marks = d.log ? logTicks(d.low, d.high) : [];
  return { range, ...(d.log ? { type: 'log', tickvals: marks.map(([at]) => 10 ** at), ticktext: marks.map(([, text]) => text) } : {}),
    title: { text: safe(d.metric) + (d.log ? '  (log)' : ''), font: { size: 12.5 } } };
};

const decades = (values) => { const logs = values.filter((v) => v !== null).map(Math.log10).sort((a, b) => a - b), marks = logTicks(logs[0], logs.at(-1));
  return { tickvals: marks.map(([at]) => 10 ** at), ticktext: marks.map(([, text]) => text) }; };

const charts = {
  sorted() {
    const d = S.d, t = d.trials, order = d.order, y = inside, x = (i) => d.rank.get(i) + 1;
    if (!order.length) return null;
    const isFew = order.length <= 200, full = order.filter((i) => d.states[t.state[i]] === 'finished'), middle = full[Math.floor(full.length / 2)], room = .16 * (d.high - d.low);
    const out = d.trials.n.length - order.length;
    title('sorted', `${count(order.length)} ranked` + (out ? `; ${count(out)} not ranked: failed, not ended or without a value` : '') + beyond());
    const line = { ...dots(order, x, y), mode: isFew ? 'lines+markers' : 'lines', line: { color: css(isFew ? '--line' : '--accent'), width: isFew ? 1.5 : 2.5 } };
    if (!isFew) delete line.marker;
    const note = (i, text, ax) => ({ x: x(i), y: d.to(y(i)), text: safe(text), showarrow: true, arrowhead: 0, arrowcolor: css('--soft'), ax, ay: d.max ? -24 : 24, font: { color: css('--ink'), size: 12 } });
    return { data: [line, ring()], mark: (i) => [[[x(i)], [y(i)]]], has: (i) => d.rank.has(i),
      layout: layout(210, { xaxis: { title: { text: 'rank' }, ...whole(order.length), range: [1 - order.length * .015 - .4, order.length * 1.015 + .4], showgrid: false }, yaxis: metricAxis(room),
        annotations: [note(order[0], `#${d.trials.n[order[0]]}  ${num(d.trials.y[order[0]])}`, 50), ...(full.length > 3 ? [note(middle, `median ${num(d.trials.y[middle])}`, 30)] : [])] }) };
  },
  slices() {
    const d = S.d, axes = d.axes.filter((a) => new Set(a.values).size > 1).slice(0, 12);
    const most = Math.floor(1800 / Math.max(1, axes.length)), failed = d.trials.n.map((_, i) => i).filter((i) => d.states[d.trials.state[i]] === 'failed'), some = drawn(most, [...d.order, ...failed]);
    title('slices', axes.length ? `most important first; ${shown(some.length, d.order.length + failed.length)}${failed.length ? '; ×: failed' : ''}${beyond()}` : '');
    if (!axes.length || !d.order.length) return null;
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
      data.push(dots(some, value, inside, some.length > 200 ? 5 : 7, on));
      rings.push({ trace: ring(on), value });
    });
    return { data: [...data, ...rings.map((r) => r.trace)], rings: rings.length, layout: all, has: (i) => d.rank.has(i), mark: (i) => rings.map((r) => [[r.value(i)], [inside(i)]]) };
  },
  history() {
    const d = S.d, t = d.trials, done = S.kept.filter(d.isRanked), best = { x: [], y: [] };
    if (!done.length) return null;
    let top = null;
    for (const i of done) if (top === null || (d.max ? t.y[i] > top : t.y[i] < top)) { top = t.y[i]; best.x.push(t.n[i]); best.y.push(top); }
    best.x.push(t.n[done.at(-1)]); best.y.push(top);
    const points = drawn(MANY, done), x = (i) => t.n[i];
    title('history', `${points.length < done.length ? shown(points.length, done.length) + '; ' : ''}${best.x.length - 1} improvement${best.x.length === 2 ? '' : 's'}${beyond()}`);
    const step = { type: 'scatter', mode: 'lines', ...best, line: { shape: 'hv', color: css('--ink'), width: 2 }, hoverinfo: 'skip' };
    return { data: [step, dots(points, x, inside, 6), ring()], has: (i) => d.rank.has(i) && S.kept.includes(i), mark: (i) => [[[x(i)], [inside(i)]]],
      layout: layout(260, { yaxis: metricAxis(), xaxis: { ...whole(t.n.length), title: { text: 'trial' } } }) };
  },
  timeline() {
    const d = S.d, t = d.trials, every = S.kept.filter((i) => t.start[i] !== null && t.worker[i]), some = [...every].sort((a, b) => t.start[a] - t.start[b]).slice(-MANY), drawnOnes = new Set(some);
    if (!some.length) return null;
    const names = [...new Set(some.map((i) => t.worker[i]))].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    title('timeline', `${names.length} worker${names.length > 1 ? 's' : ''}; ${some.length < every.length ? `the last ${count(some.length)} of ${count(every.length)} trials` : 'latest attempts'}`);
    const last = Math.max(...some.map((i) => t.start[i] + t.took[i])), [unit, unitName] = last > 7200 ? [3600, 'hours'] : last > 180 ? [60, 'minutes'] : [1, 'seconds'];
    const row = new Map(names.map((name, k) => [name, k])), y = (i) => row.get(t.worker[i]);
    const high = clamp(names.length * 26, 60, 420), gap = { finished: ['--accent', 1], pruned: ['--accent', .35], failed: ['--soft', .7], cancelled: ['--soft', .4], running: ['--ink', .8] };
    const end = (i) => (t.start[i] + t.took[i]) / unit, words = (i) => safe(`${about(i)}\n${time(t.took[i])}`), line = { ...ring({ showlegend: false }), mode: 'lines', line: { width: 3, color: css('--ink') } };
    const data = Object.entries(gap).map(([state, [name, opacity]]) => {
      const mine = some.filter((i) => d.states[t.state[i]] === state), three = (f) => mine.flatMap(f);
      return { type: 'scatter', mode: 'lines', name: state, showlegend: mine.length > 0, opacity, x: three((i) => [t.start[i] / unit, t.start[i] / unit + t.took[i] / unit * .97, null]), y: three((i) => [y(i), y(i), null]), customdata: three((i) => [i, i, null]),
        text: three((i) => [words(i), words(i), '']), hoverinfo: 'text', line: { width: clamp(high / names.length * .62, 3, 16), color: css(name), simplify: false } };
    });
    return { data: [...data, line], has: (i) => drawnOnes.has(i),
      mark: (i) => [[[t.start[i] / unit, end(i)], [y(i), y(i)].map((v) => v - .42)]],
      layout: layout(high + 80, { showlegend: true, legend: { orientation: 'h', x: 0, y: 1, yanchor: 'bottom' }, margin: { l: 20 + 7 * Math.min(24, Math.max(...names.map((n) => n.length))), r: 16, t: 32, b: 40 }, xaxis: { rangemode: some.length < every.length ? 'normal' : 'tozero', title: { text: `${unitName} since the sweep was created` } }, yaxis: { tickvals: names.map((_, k) => k), ticktext: names.map((n) => safe(n.length > 24 ? '…' + n.slice(-23) : n)), range: [names.length - .4, -.6], showgrid: false } }) };
  },
};
const OPTIONS = { displayModeBar: false, responsive: true };
for (const [name, build] of Object.entries(charts)) {
  const box = $(`#${name}-plot`), block = { reset: () => { block.last = null; } }, isAbove = ['sorted', 'slices'].includes(name);
  block.draw = () => {
    if (!window.Plotly || (isAbove && block.last)) return; // the brush filters what is below it
    $('#' + name).hidden = false; // its width is needed
    const figure = block.last = build();
    $('#' + name).hidden = !figure;
    if (!figure) return;
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
