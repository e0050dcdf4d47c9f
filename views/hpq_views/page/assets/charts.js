// Charts by plotly: results, slices, pairs, timeline.
const heightOf = (i) => S.d.to(S.d.y[i]); // on the metric's axis
const isBeyond = (i) => heightOf(i) < S.d.low || heightOf(i) > S.d.high;
const symbol = (i) =>
  !S.d.rank.has(i)
    ? 'x'
    : S.d.isOut(i)
      ? 'circle-open'
      : !isBeyond(i)
        ? 'circle'
        : heightOf(i) < S.d.low
          ? 'triangle-down'
          : 'triangle-up';
const dots = (some, x, y, size = 7, more = {}) => ({
  type: 'scatter',
  mode: 'markers',
  x: some.map(x),
  y: some.map(y),
  customdata: some,
  hoverinfo: 'text',
  cliponaxis: false,
  text: some.map((i) => safe(about(i))),
  marker: {
    color: some.map((i) => color(i, 0.85)),
    symbol: some.map(symbol),
    size: some.map((i) => (isBeyond(i) ? size + 4 : size)),
    line: { width: 0 },
  },
  ...more,
});
// The standard deviation of replicates.
const spreads = (some) => {
  const { spread } = S.d.measured[0];
  const bars = { type: 'data', array: some.map(spread ?? (() => 0)), color: css('--soft') };
  return spread ? { error_y: { ...bars, thickness: 1, width: 3 } } : {};
};
const ring = (more = {}) => ({
  type: 'scatter',
  mode: 'markers',
  x: [],
  y: [],
  hoverinfo: 'skip',
  cliponaxis: false,
  marker: { size: 13, color: 'rgba(0,0,0,0)', line: { width: 2.5, color: css('--ink') } },
  ...more,
});
// Beyond the scale: at its edge.
const inside = (i) =>
  S.d.from(S.d.rank.has(i) ? clamp(heightOf(i), S.d.low, S.d.high) : S.d.max ? S.d.low : S.d.high);
function beyond() {
  // what the scale leaves out, which each chart must say
  const far = S.d.order
    .filter(isBeyond)
    .map((i) => S.d.y[i])
    .sort((a, b) => a - b);
  const ends = [...new Set([far[0], far.at(-1)])].map((v) => num(v));
  return far.length
    ? `; ${count(far.length)} beyond the scale at its edge (${ends.join(' to ')})`
    : '';
}
const axisTitle = (text) => ({ text, font: { size: 12.5 } });
const whole = (n) => ({ tickformat: ',d', dtick: n < 10 ? 1 : undefined });
const metricAxis = (room = 0, d = S.d, name = d.metric) => {
  // by the server's scale
  const range = d.max ? [d.low, d.high + room] : [d.low - room, d.high],
    marks = d.log ? logTicks(d.low, d.high) : [];
  return {
    range,
    ...(d.log
      ? {
          type: 'log',
          tickvals: marks.map(([at]) => 10 ** at),
          ticktext: marks.map(([, text]) => text),
        }
      : {}),
    title: axisTitle(safe(name) + (d.log ? '  (log)' : '')),
  };
};

const paramAxis = (one, isMissing, apart = 0, more = '') => {
  // a parameter placed between 0 and 1; numbers nearer than `apart` to the last one have no text
  let last = -1;
  const isNumber = one.kind !== 'category',
    room = apart && !isNumber ? Math.max(3, Math.floor(34 / one.marks.length)) : 24;
  const marks = one.marks.filter(([at]) => {
    const isShown = !isNumber || at - last >= apart;
    if (isShown) last = at;
    return isShown;
  });
  if (isMissing) marks.unshift([NONE, 'none']);
  return {
    range: [isMissing ? -0.13 : -0.02, 1.02],
    tickvals: marks.map((m) => m[0]),
    ticktext: marks.map((m) => safe(String(m[1]).slice(0, room))),
    showgrid: false,
    title: {
      text: `<b>${safe(one.name)}</b>${more}${one.kind === 'log' ? '  (log)' : ''}`,
      font: { size: 12.5, color: css('--ink') },
      standoff: 8,
    },
  };
};

// The two names that a chart draws, by the menus in its title.
const pairs = {
  chosen: { front: null, pair: null },
  shown: {},
  menus: (id) => [`#${id}-x`, `#${id}-y`].map((menu) => $(menu)),
  of(id, names) {
    const isKnown = pairs.chosen[id]?.every((name) => names.includes(name)),
      two = (pairs.shown[id] = isKnown ? pairs.chosen[id] : names.slice(0, 2));
    pairs.menus(id).forEach((menu, k) => fillMenu(menu, names, two[k]));
    return two;
  },
  choose(id, k, name) {
    const two = [...pairs.shown[id]];
    if (two[1 - k] === name) two[1 - k] = two[k]; // they change places
    two[k] = name;
    pairs.chosen[id] = two;
  },
};

const charts = {
  front() {
    // two of several metrics; the line is the front of these two
    const d = S.d;
    if (!d.front) return null;
    const names = d.measured.map((one) => one.name);
    const [a, b] = pairs.of('front', names).map((name) => {
      const one = d.measured[names.indexOf(name)],
        within = (v) => one.from(clamp(one.to(v), one.low, one.high));
      return {
        ...one,
        k: names.indexOf(name),
        sign: one.max ? 1 : -1,
        within,
        at: (i) => within(one.value(i)),
        words: `${name}, ${one.max ? 'maximize' : 'minimize'}`,
      };
    });
    $('#front-x').parentNode.hidden = names.length < 3;
    const done = d.order.filter(
        (i) =>
          (d.isFinished(i) || d.replicates > 1) && d.measured.every((one) => one.value(i) !== null),
      ),
      parts = [d.isOut, (i) => !d.isOut(i) && !d.isFront(i), d.isFront].map((is) =>
        done.filter(is),
      ),
      [out, rest, members] = parts,
      some = parts.flatMap((part) => drawn(MANY / 2, part));
    if (!done.length) return null;
    let best = -Infinity;
    const line = d.front
      .map((row) => [row[a.k + 1], row[b.k + 1]])
      .sort((v, w) => a.sign * (w[0] - v[0]) || b.sign * (w[1] - v[1]))
      .filter(([, v]) => b.sign * v > best && ((best = b.sign * v), true));
    title(
      'front',
      `${count(members.length)} on the front` +
        (d.rest.dominated ? `; ${count(d.rest.dominated)} dominated: gray` : '') +
        (d.rest.infeasible ? `; ${count(d.rest.infeasible)} infeasible: hollow` : '') +
        (some.length < done.length ? `; ${shown(some.length, done.length)}` : ''),
    );
    const step = {
        type: 'scatter',
        mode: 'lines',
        x: line.map(([v]) => a.within(v)),
        y: line.map(([, v]) => b.within(v)),
        line: { shape: 'hv', color: css('--ink'), width: 1.5 },
        hoverinfo: 'skip',
      },
      points = dots(some, a.at, b.at, some.length > 200 ? 5 : 7);
    points.marker.size = some.map((i) => (d.isFront(i) ? 8 : 5));
    points.marker.symbol = some.map((i) => (d.isOut(i) ? 'circle-open' : 'circle'));
    return {
      data: [step, points, ring()],
      has: (i) => done.includes(i),
      mark: (i) => [[[a.at(i)], [b.at(i)]]],
      layout: layout(380, {
        xaxis: metricAxis(0, a, a.words),
        yaxis: metricAxis(0, b, b.words),
      }),
    };
  },
  sorted() {
    const d = S.d,
      t = d.trials,
      order = d.order,
      y = inside,
      x = (i) => d.rank.get(i) + 1;
    if (!order.length || d.front) return null;
    const isFew = order.length <= 200,
      full = order.filter((i) => d.replicates > 1 || d.isFinished(i)),
      middle = full.map((i) => d.y[i]).sort((a, b) => a - b),
      room = 0.26 * (d.high - d.low); // two labels stand above each other beside the best results
    const out = new Set(d.lead).size - order.length,
      what = d.replicates > 1 ? `settings of ${d.replicates} runs each, by their mean ± sd` : '',
      median = quantile(middle, 0.5),
      counted = full.length < order.length ? ` of ${count(full.length)} finished` : '';
    title(
      'sorted',
      `${count(d.ranked)} ${what || 'ranked'}` +
        (order.length > d.ranked ? `; ${count(order.length - d.ranked)} infeasible: gray, last` : '') +
        (out ? `; ${count(out)} not ranked: failed, not ended or without a value` : '') +
        beyond(),
    );
    const line = {
      ...dots(order, x, y),
      ...spreads(order),
      mode: isFew ? 'lines+markers' : 'lines',
      line: { color: css(isFew ? '--line' : '--accent'), width: isFew ? 1.5 : 2.5 },
    };
    if (!isFew) delete line.marker;
    const note = (rank, v, text, away) => {
      const share = rank / order.length; // a label stays inside the chart
      return {
        x: rank,
        y: clamp(d.to(v), d.low, d.high),
        text: safe(text),
        showarrow: true,
        arrowhead: 0,
        arrowcolor: css('--soft'),
        ax: share < 0.65 ? 16 : -16,
        ay: d.max ? -away : away,
        xanchor: share < 0.35 ? 'left' : share < 0.65 ? 'center' : 'right',
        font: { color: css('--ink'), size: 12 },
      };
    };
    return {
      data: [line, ring()],
      mark: (i) => [[[x(i)], [y(i)]]],
      has: (i) => d.rank.has(i),
      layout: layout(210, {
        xaxis: {
          title: axisTitle('rank'),
          ...whole(order.length),
          range: [1 - order.length * 0.015 - 0.4, order.length * 1.015 + 0.4],
          showgrid: false,
        },
        yaxis: metricAxis(room),
        annotations: [
          note(1, d.y[order[0]], `#${t.n[order[0]]}  ${measure(d.y[order[0]])}`, 30),
          ...(full.length > 3
            ? [note(quantile(full.map(x), 0.5), median, `median ${measure(median)}${counted}`, 15)]
            : []),
        ],
      }),
    };
  },
  slices() {
    const d = S.d,
      axes = d.axes.filter((a) => new Set(a.values).size > 1).slice(0, 12);
    const most = Math.floor(1700 / Math.max(1, axes.length)),
      failed = d.trials.n.map((_, i) => i).filter((i) => d.states[d.trials.state[i]] === 'failed'),
      some = drawn(most, [...d.order, ...failed]);
    $('#goal').parentNode.hidden = !d.objectives;
    fillMenu(
      $('#goal'),
      d.measured.map((one) => one.name),
      d.metric,
    );
    title(
      'slices',
      axes.length
        ? (axes[0].share === null ? '' : 'most important first; ') +
            shown(some.filter((i) => d.rank.has(i)).length, d.order.length) +
            `${failed.length ? `; ×: ${count(failed.length)} failed` : ''}${beyond()}`
        : '',
    );
    if (!axes.length || !d.order.length) return null;
    const wide = $('#slices-plot').clientWidth,
      columns = Math.max(1, Math.min(axes.length, 4, Math.floor(wide / 220))),
      rows = Math.ceil(axes.length / columns);
    const high = 150,
      gap = 62,
      whole = rows * (high + gap) - gap,
      all = layout(whole + 62, { margin: { l: 64, r: 16, t: 8, b: 54 } }),
      { xaxis, yaxis } = all,
      data = [],
      rings = [];
    axes.forEach((a, k) => {
      const id = k ? k + 1 : '',
        [row, column] = [Math.floor(k / columns), k % columns],
        next = random(k + 3),
        top = 1 - (row * (high + gap)) / whole;
      const { place, marks } = placing(a, next),
        share = a.share === null ? '' : `  ${(100 * a.share).toFixed(0)}%`,
        on = { xaxis: 'x' + id, yaxis: 'y' + id };
      all['xaxis' + id] = {
        ...xaxis,
        ...paramAxis({ ...a, marks }, a.values.includes(null), 0.2, share),
        anchor: 'y' + id,
        domain: [column / columns + 0.012, (column + 1) / columns - 0.012],
        tickangle: 0,
        ticklabelstandoff: 4, // below the failed trials, which lie on the axis
      };
      all['yaxis' + id] = {
        ...yaxis,
        ...metricAxis(),
        anchor: 'x' + id,
        domain: [Math.max(0, top - high / whole), top],
        matches: k ? 'y' : undefined,
        showticklabels: !column,
        title: column ? undefined : metricAxis().title,
      };
      data.push(dots(some, place, inside, some.length > 200 ? 5 : 7, on));
      rings.push({ trace: ring(on), place });
    });
    return {
      data: [...data, ...rings.map((r) => r.trace)],
      rings: rings.length,
      layout: all,
      has: (i) => d.rank.has(i),
      mark: (i) => rings.map((r) => [[r.place(i)], [inside(i)]]),
    };
  },
  pair() {
    // dots, and behind them the mean of the results around each place
    const d = S.d,
      axes = d.axes.filter((a) => new Set(a.values).size > 1),
      done = S.kept.filter(d.isRanked),
      names = axes.map((a) => a.name);
    if (axes.length < 2 || done.length < 3) return null;
    const [a, b] = pairs.of('pair', names).map((name, k) => {
      const one = axes.find((axis) => axis.name === name);
      return { ...one, ...placing(one, random(k + 11)) };
    });
    const wide = clamp(0.5 / Math.sqrt(done.length), 0.04, 0.12),
      at = Array.from({ length: 33 }, (_, k) => k / 32),
      some = drawn(MANY / 5, done);
    const points = done.map((i) => [a.place(i), b.place(i), d.to(inside(i))]);
    const z = at.map((y) => {
      const near = points.filter((p) => Math.abs(p[1] - y) < 3 * wide);
      return at.map((x) => {
        let [sum, all] = [0, 0];
        for (const [px, py, v] of near) {
          const w = Math.exp(-((px - x) ** 2 + (py - y) ** 2) / (2 * wide * wide));
          sum += w * v;
          all += w;
        }
        return all > 0.3 ? sum / all : null; // no result is near
      });
    });
    title(
      'pair',
      `${shown(some.length, done.length)}; ` +
        `the color behind the dots is the mean ${d.front ? d.metric : 'of the results'} near them` +
        beyond(),
    );
    const colors = d.max ? [...RAMP].reverse() : RAMP;
    const field = {
      type: 'contour',
      x: at,
      y: at,
      z,
      ncontours: 12,
      showscale: false,
      opacity: 0.45,
      hoverinfo: 'skip',
      line: { width: 0 },
      colorscale: colors.map((c, k) => [k / (colors.length - 1), `rgb(${c})`]),
    };
    return {
      data: [field, dots(some, a.place, b.place, some.length > 200 ? 5 : 7), ring()],
      has: (i) => done.includes(i),
      mark: (i) => [[[a.place(i)], [b.place(i)]]],
      layout: layout(380, {
        margin: { l: 74, r: 16, t: 8, b: 50 },
        xaxis: {
          tickangle: 0,
          ...paramAxis(
            a,
            points.some((p) => p[0] < 0),
            70 / $('#pair-plot').clientWidth,
          ),
        },
        yaxis: paramAxis(
          b,
          points.some((p) => p[1] < 0),
          0.05,
        ),
      }),
    };
  },
  timeline() {
    const d = S.d,
      t = d.trials,
      every = S.kept.filter((i) => t.start[i] !== null && t.worker[i]),
      some = [...every].sort((a, b) => t.start[a] - t.start[b]).slice(-MANY),
      drawnOnes = new Set(some);
    if (!some.length) return null;
    const names = [...new Set(some.map((i) => t.worker[i]))].sort((a, b) =>
      a.localeCompare(b, 'en', { numeric: true }),
    );
    title(
      'timeline',
      `${names.length} worker${names.length > 1 ? 's' : ''}; ` +
        (some.length < every.length
          ? `the last ${count(some.length)} of ${trialsOf(every.length)}`
          : 'latest attempts'),
    );
    const last = Math.max(...some.map((i) => t.start[i] + t.took[i])),
      [unit, unitName] =
        last > 7200 ? [3600, 'hours'] : last > 180 ? [60, 'minutes'] : [1, 'seconds'];
    const room = $('#timeline-plot').clientWidth < 500 ? 12 : 24,
      row = new Map(names.map((name, k) => [name, k])),
      y = (i) => row.get(t.worker[i]);
    const high = clamp(names.length * 26, 60, 420),
      gap = {
        finished: ['--accent', 1],
        pruned: ['--accent', 0.35],
        failed: ['--soft', 0.7],
        cancelled: ['--soft', 0.4],
        running: ['--ink', 0.8],
      };
    const end = (i) => (t.start[i] + t.took[i]) / unit,
      words = (i) => safe(`${about(i)}\n${time(t.took[i])}`),
      line = {
        ...ring({ showlegend: false }),
        mode: 'lines',
        line: { width: 3, color: css('--ink') },
      };
    const data = Object.entries(gap).map(([state, [name, opacity]]) => {
      const mine = some.filter((i) => d.states[t.state[i]] === state),
        three = (f) => mine.flatMap(f);
      return {
        type: 'scatter',
        mode: 'lines',
        name: state,
        showlegend: mine.length > 0,
        opacity,
        x: three((i) => [t.start[i] / unit, t.start[i] / unit + (t.took[i] / unit) * 0.97, null]),
        y: three((i) => [y(i), y(i), null]),
        customdata: three((i) => [i, i, null]),
        text: three((i) => [words(i), words(i), '']),
        hoverinfo: 'text',
        line: {
          width: clamp((high / names.length) * 0.62, 3, 16),
          color: css(name),
          simplify: false,
        },
      };
    });
    return {
      data: [...data, line],
      has: (i) => drawnOnes.has(i),
      mark: (i) => [[[t.start[i] / unit, end(i)], [y(i), y(i)].map((v) => v - 0.42)]],
      layout: layout(high + 80, {
        showlegend: true,
        legend: { orientation: 'h', x: 0, y: 1, yanchor: 'bottom' },
        margin: {
          l: 20 + 7 * Math.min(room, Math.max(...names.map((n) => n.length))),
          r: 16,
          t: 32,
          b: 40,
        },
        xaxis: {
          rangemode: some.length < every.length ? 'normal' : 'tozero',
          title: axisTitle(`${unitName} since creation`),
        },
        yaxis: {
          tickvals: names.map((_, k) => k),
          ticktext: names.map((n) => safe(n.length > room ? '…' + n.slice(1 - room) : n)),
          range: [names.length - 0.4, -0.6],
          showgrid: false,
        },
      }),
    };
  },
};
const OPTIONS = { displayModeBar: false, responsive: true };
for (const box of $$('.plot')) {
  box.role = 'img'; // the table below has all trials
  box.ariaLabel = $('h2', box.closest('section')).firstChild.textContent.trim();
}
const blocks = {}; // by name
for (const [name, build] of Object.entries(charts)) {
  const box = $(`#${name}-plot`),
    block = {
      reset: () => {
        block.last = null;
      },
    },
    isAbove = ['front', 'sorted', 'slices'].includes(name);
  block.draw = () => {
    if (!window.Plotly || (isAbove && block.last)) return; // the brush filters what is below it
    $('#' + name).hidden = false; // its width is needed
    const figure = (block.last = build());
    $('#' + name).hidden = !figure;
    if (!figure) return;
    block.rings = figure.rings ?? 1;
    Plotly.react(box, figure.data, figure.layout, OPTIONS);
    if (!block.made)
      box.on('plotly_click', (event) => {
        const i = event.points[0].customdata;
        if (Number.isInteger(i)) select(i);
      });
    block.made = true;
    block.mark();
  };
  block.mark = () => {
    if (!window.Plotly || !block.last) return;
    // Most charts draw a setting, by its first trial.
    const one = [S.sel, S.d.lead[S.sel]].find((i) => i >= 0 && block.last.has(i)),
      marks =
        one !== undefined
          ? block.last.mark(one)
          : Array.from({ length: block.rings }, () => [[], []]),
      n = block.last.data.length;
    Plotly.restyle(
      box,
      { x: marks.map((m) => m[0]), y: marks.map((m) => m[1]) },
      marks.map((_, k) => n - marks.length + k),
    );
  };
  blocks[name] = block;
  S.blocks.push(block);
}
for (const name of Object.keys(pairs.chosen)) {
  pairs.menus(name).forEach((menu, k) =>
    menu.addEventListener('change', () => {
      pairs.choose(name, k, menu.value);
      blocks[name].reset();
      blocks[name].draw();
      address.write();
    }),
  );
  address.kept.push({
    key: name,
    get: () => wordsOf(pairs.chosen[name] ?? []),
    set: (text) => {
      const two = listOf(text);
      pairs.chosen[name] = two.length === 2 && two[0] !== two[1] ? two : null;
      blocks[name].reset();
    },
  });
}
function aim(name) {
  // of several metrics, the one that the charts of one metric show
  S.d.metric = name;
  prepare(S.d);
  S.blocks.forEach((block) => block !== table && block.reset?.());
}
$('#goal').addEventListener('change', ({ target }) => {
  aim(target.value);
  address.write();
  filter();
  refresh('mark');
});
address.kept.push({
  key: 'goal',
  get: () => (S.d.objectives && S.d.metric !== S.d.objectives[0].name ? S.d.metric : ''),
  set: (text) => {
    const names = S.d.objectives?.map((one) => one.name) ?? [];
    if (names.includes(text)) aim(text);
  },
});
