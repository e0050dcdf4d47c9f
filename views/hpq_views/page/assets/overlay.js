// Several sweeps over each other: a metric by step, and the best result so far.
const overlay = {
  metric: null, // as chosen
  reset() {
    overlay.isDrawn = false;
  },
  draw() {
    const box = $('#overlay-plot');
    if (!box || overlay.isDrawn || !box.clientWidth) return;
    const names = [...new Set(S.all.flatMap((d) => d.metrics))],
      common = names.find((one) => S.all.every((d) => d.metrics.includes(one))),
      name = names.includes(overlay.metric) ? overlay.metric : (common ?? names[0]);
    $('#overlay').hidden = !names.length;
    if (!names.length) return;
    fillMenu($('#overlay-metric'), names, name);
    overlay.charts ??= ['#overlay-plot', '#overlay-best'].map((id) => new LineChart($(id)));
    const [curve, best] = overlay.charts,
      found = S.all.map((d, k) => overlay.of(d, name, HUES[k % HUES.length])),
      isLog = S.all.some((d) => d.sets.get(name)?.c?.log),
      ranked = S.all.filter((d) => d.metric === name && d.order.length);
    $('#overlay-legend').replaceChildren(
      ...S.all.map((d, k) => {
        const mark = el('i', '■'),
          part = el('span');
        mark.style.color = HUES[k % HUES.length];
        part.append(mark, ` ${d.id}`);
        return part;
      }),
    );
    title(
      'overlay',
      `${name}, ${found.map((one) => count(one.all)).join(' and ')} trials, ` +
        'without pruned and failed ones; median, band of 80%, dotted: the best trial',
    );
    overlay.show(curve, found.flatMap((one) => one.lines), {
      bands: found.flatMap((one) => one.bands),
      x: { name: 'step', low: 0 },
      y: { name, log: isLog },
    });
    best.box.hidden = !ranked.length;
    if (ranked.length)
      overlay.show(
        best,
        ranked.map((d) => overlay.bestOf(d, HUES[S.all.indexOf(d) % HUES.length])),
        { x: { name: 'results' }, y: { name: `best ${name} so far`, log: isLog } },
      );
    overlay.isDrawn = true;
  },
  show(chart, lines, more) {
    // with the zoom that was chosen
    chart.onZoom = (view) => {
      chart.view = view ?? {};
      overlay.show(chart, lines, more);
    };
    chart.draw({ lines, ...more, view: chart.view, height: 280 });
  },
  of(d, name, hue) {
    // the median of a sweep's curves, and the curve of its best trial
    if (d.metrics.includes(name)) load(d, name);
    const set = d.sets.get(name),
      isShown = (n) => ['finished', 'running'].includes(d.states[d.trials.state[d.at_of.get(n)]]),
      all = [...(set?.curve ?? [])].filter(([n]) => isShown(n)).map(([, one]) => one),
      parts = (values) => [0.5, 0.1, 0.9].map((q) => quantile(values, q)),
      rows = spread(all, parts, 1),
      column = (k) => rows.map((row) => row[k]),
      x = column(0),
      winner = set?.curve.get(d.trials.n[d.order[0]]),
      lines = [{ x, y: column(1), color: hue, width: 2.4, name: `${d.id}, median` }];
    if (winner)
      lines.push({
        ...winner,
        color: hue,
        dash: [2, 4],
        name: `${d.id}, #${d.trials.n[d.order[0]]}`,
      });
    return {
      all: all.length,
      lines,
      bands:
        all.length > 1
          ? [{ x, low: column(2), high: column(3), color: faint(hue, 0.17) }]
          : [],
    };
  },
  bestOf(d, hue) {
    const end = (i) => (d.trials.start[i] ?? 0) + d.trials.took[i],
      better = d.max ? Math.max : Math.min,
      y = [];
    for (const i of [...d.order].sort((a, b) => end(a) - end(b)))
      y.push(better(y.at(-1) ?? d.y[i], d.y[i]));
    const x = y.map((_, k) => k + 1);
    return { x, y, color: hue, width: 2.4, isStep: true, name: d.id };
  },
};
$('#overlay-metric')?.addEventListener('change', ({ target }) => {
  overlay.metric = target.value;
  for (const chart of overlay.charts) chart.view = {};
  overlay.reset();
  overlay.draw();
});
S.blocks.push(overlay);
