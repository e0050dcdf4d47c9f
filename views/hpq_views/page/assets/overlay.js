// Several sweeps over each other: a metric by step, and the best result so far.
const HUES = [
  '#2f6fb0',
  '#d55e00',
  '#009e73',
  '#cc6fa3',
  '#b8860b',
  '#56b4e9',
  '#8a63d2',
  '#8c8c8c',
];
const overlay = {
  reset() {
    overlay.isDrawn = false;
  },
  draw() {
    const box = $('#overlay-plot'),
      menu = $('#overlay-metric');
    if (!box || !window.Plotly || overlay.isDrawn) return;
    const names = [...new Set(S.all.flatMap((d) => d.metrics))],
      common = names.find((one) => S.all.every((d) => d.metrics.includes(one))),
      name = names.includes(S.metric) ? S.metric : (common ?? names[0]);
    $('#overlay').hidden = !names.length;
    if (!names.length) return;
    fillMenu(menu, names, name);
    const data = [],
      said = [],
      isNarrow = box.clientWidth < 700,
      ranked = S.all.filter((d) => d.metric === name && d.order.length),
      seen = [],
      results = [];
    S.all.forEach((d, k) => {
      const color = HUES[k % HUES.length],
        line = (x, y, more) => ({
          type: 'scatter',
          mode: x.length > 1 ? 'lines' : 'markers',
          x,
          y,
          line: { color, width: 2.4, ...more.line },
          marker: { color },
          legendgroup: d.id,
          showlegend: false,
          hovertemplate: `%{y:.4g} at %{x:,.6~g}<extra>${safe(more.about)}</extra>`,
          ...more.on,
        });
      if (d.metrics.includes(name)) load(d, name);
      const set = d.sets.get(name),
        counts = (n) => ['finished', 'running'].includes(d.states[d.trials.state[d.at_of.get(n)]]),
        from = set?.c?.log ? (v) => 10 ** v : (v) => v,
        all = [...(set?.curve ?? [])]
          .filter(([n]) => counts(n))
          .map(([, { x, y }]) => ({ x, y: y.map(from) })),
        rows = set?.c ? spread(all, set.c.last, [0.1, 0.5, 0.9], 1) : [],
        at = rows.map((r) => r[0]),
        curve = set?.curve.get(d.trials.n[d.order[0]]),
        best = curve && { x: curve.x, y: curve.y.map(from) };
      said.push(count(all.length));
      seen.push(...rows.flatMap((r) => r.slice(1)));
      if (all.length > 1)
        data.push({
          type: 'scatter',
          mode: 'lines',
          x: [...at, ...at.toReversed()],
          y: [...rows.map((r) => r[1]), ...rows.map((r) => r[3]).reverse()],
          fill: 'toself',
          fillcolor: color + '2b',
          line: { width: 0 },
          hoverinfo: 'skip',
          legendgroup: d.id,
          showlegend: false,
        });
      data.push(
        line(
          at,
          rows.map((r) => r[2]),
          { about: `${d.id}, median`, line: {}, on: { name: safe(d.id), showlegend: true } },
        ),
      );
      if (best) {
        data.push(
          line(best.x, best.y, {
            about: `${d.id}, #${d.trials.n[d.order[0]]}`,
            line: { dash: 'dot', width: 1.8 },
          }),
        );
        seen.push(...best.y.filter((v) => !Number.isNaN(v)));
      }
      if (!ranked.includes(d)) return;
      const end = (i) => (d.trials.start[i] ?? 0) + d.trials.took[i],
        inside = (i) => d.from(clamp(d.to(d.y[i]), d.low, d.high)), // as every chart
        y = [];
      for (const i of [...d.order].sort((a, b) => end(a) - end(b)))
        y.push(y.length ? (d.max ? Math.max : Math.min)(y.at(-1), inside(i)) : inside(i));
      results.push(...y.filter((v) => v > 0));
      data.push(
        line(
          y.map((_, j) => j + 1),
          y,
          {
            about: `${d.id}, best so far`,
            line: { shape: 'hv' },
            on: { xaxis: 'x2', yaxis: 'y2' },
          },
        ),
      );
    });
    title(
      'overlay',
      `${name}, ${said.join(' and ')} trials, without pruned and failed ones; ` +
        'median, band of 80%, dotted: the best trial',
    );
    const isLog = S.all.some((d) => d.sets.get(name)?.c?.log),
      high = 300,
      { xaxis, yaxis, ...all } = layout(isNarrow && ranked.length ? 2 * high : high + 40, {
        showlegend: true,
        legend: { orientation: 'h', x: 0, y: 1, yanchor: 'bottom' },
        margin: { l: 64, r: 16, t: 34, b: 44 },
      });
    const left = ranked.length && !isNarrow ? [0, 0.47] : [0, 1],
      top = ranked.length && isNarrow ? [0.58, 1] : [0, 1],
      scaleOf = (some) => (isLog && some.length ? { type: 'log', ...decades(some) } : level(some)),
      brief = name.length > 20 ? `…${name.slice(-19)}` : name, // two titles in one column
      called = (text) => ({ title: { text: safe(text), font: { size: 12.5 }, standoff: 6 } });
    Object.assign(all, {
      xaxis: { ...xaxis, domain: left, anchor: 'y', ...called('step') },
      yaxis: { ...yaxis, domain: top, ...scaleOf(seen), ...called(brief) },
    });
    if (ranked.length)
      Object.assign(all, {
        xaxis2: {
          ...xaxis,
          domain: isNarrow ? [0, 1] : [0.56, 1],
          anchor: 'y2',
          ...(Math.max(...ranked.map((d) => d.order.length)) > 200
            ? { type: 'log', ...decades([1, ...ranked.map((d) => d.order.length)]) }
            : {}),
          ...called('results'),
        },
        yaxis2: {
          ...yaxis,
          domain: isNarrow ? [0, 0.4] : [0, 1],
          anchor: 'x2',
          ...scaleOf(results),
          ...called(isNarrow ? `best ${brief}` : `best ${brief} so far`),
        },
      });
    Plotly.react(box, data, all, OPTIONS);
    overlay.isDrawn = true;
  },
};
$('#overlay-metric')?.addEventListener('change', (event) => choose(event.target.value));
S.blocks.push(overlay);
