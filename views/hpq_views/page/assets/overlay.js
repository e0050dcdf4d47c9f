// Several sweeps over each other: a metric by step, and the best result so far; or chosen trials.
const OVER = ['overlay-plot', 'overlay-best'];
const overlay = {
  metric: null, // as chosen
  trials: [], // as chosen: SWEEP/NUMBER, of any sweep of the page
  reset() {
    overlay.isDrawn = false;
  },
  draw() {
    if (overlay.isDrawn) return;
    const chosen = overlay.chosen(),
      sweeps = chosen.length ? [...new Set(chosen.map(({ d }) => d))] : S.all,
      names = [...new Set(sweeps.flatMap((d) => d.metrics))],
      common = names.find((one) => sweeps.every((d) => d.metrics.includes(one))),
      name = names.includes(overlay.metric) ? overlay.metric : (common ?? names[0]);
    $('#overlay').hidden = !names.length || (S.all.length < 2 && !chosen.length);
    if ($('#overlay').hidden) return;
    fillMenu($('#overlay-metric'), names, name);
    const x = overlay.axis(sweeps, name);
    for (const d of sweeps)
      for (const one of [name, x]) if (d.metrics.includes(one)) load(d, one);
    overlay.charts ??= OVER.map((id) => new LineChart($(`#${id}`)));
    const [curve, best] = overlay.charts,
      hue = (k) => HUES[k % HUES.length],
      found = chosen.length
        ? chosen.map((one, k) => overlay.trial(one, name, x, hue(k)))
        : S.all.map((d, k) => overlay.of(d, name, x, hue(k))),
      isLog = sweeps.some((d) => d.sets.get(name)?.c?.log),
      ranked = chosen.length ? [] : S.all.filter((d) => d.progress[name]?.best.length),
      none = found.filter((one) => !one.all).length;
    $('#overlay-legend').replaceChildren(
      ...(chosen.length ? overlay.trials : S.all.map((d) => d.id)).map((text, k) => {
        const mark = el('i', '■'),
          part = el('span');
        mark.style.color = hue(k);
        part.append(mark, ` ${text} `);
        if (chosen.length) {
          const button = el('button', '×', { ariaLabel: `Remove ${text} from the overlay` });
          button.onclick = () => overlay.toggle(text);
          part.append(button);
        }
        return part;
      }),
    );
    overlay.show(curve, found.flatMap((one) => one.lines), {
      bands: found.flatMap((one) => one.bands),
      x: { name: x, low: x === 'step' ? 0 : undefined },
      y: { name, log: isLog },
    });
    best.box.hidden = !ranked.length;
    if (ranked.length) {
      const lines = ranked.map((d) => ({
          ...bestOf(d, name),
          color: hue(S.all.indexOf(d)),
          width: 2.4,
          name: d.id,
        })),
        kept = lines.map(({ y }) => y.at(-1)); // what is compared
      overlay.show(best, lines, {
        x: { name: 'results', isWhole: true },
        y: { name: `best ${name} so far`, log: isLog, kept },
      });
    }
    title(
      'overlay',
      (chosen.length
        ? `${name} of ${chosen.length} chosen ${chosen.length === 1 ? 'trial' : 'trials'}` +
          (none ? `; ${none} without a curve here` : '')
        : `${name}, ${found.map((one) => count(one.all)).join(' and ')} trials, ` +
          'without pruned and failed ones; median, band of 80%, dotted: the best trial'),
    );
    overlay.isDrawn = true;
  },
  chosen() {
    // the trials that the page has
    const found = overlay.trials.map((text) => {
      const [sid, n] = text.split('/'),
        d = S.all.find((one) => one.id === sid);
      return { text, d, n: +n };
    });
    const known = found.filter(({ d, n }) => d?.at_of.has(n));
    overlay.trials = known.map(({ text }) => text);
    return known;
  },
  numbers: (d) => overlay.chosen().flatMap((one) => (one.d === d ? [one.n] : [])),
  toggle(text) {
    const isChosen = overlay.trials.includes(text),
      others = overlay.trials.filter((one) => one !== text);
    overlay.choose(isChosen ? others : [...others, text]);
  },
  choose(trials) {
    overlay.trials = trials;
    overlay.reset();
    overlay.draw();
    panel.mark();
    address.write();
  },
  // What the scripts of all these sweeps define as the axis of a metric, or the step.
  axis: (sweeps, name) => {
    const [first, ...others] = new Set(sweeps.map((d) => d.by[name] ?? 'step'));
    return others.length ? 'step' : first;
  },
  placed({ sets }, name, x, n) {
    const found = sets.get(name)?.curve.get(n);
    return found && x !== 'step' ? over(found, sets.get(x)?.curve.get(n)) : found;
  },
  trial({ d, n, text }, name, x, hue) {
    const curve = overlay.placed(d, name, x, n);
    return {
      all: curve ? 1 : 0,
      lines: curve ? [{ ...curve, color: hue, width: 2, name: text }] : [],
      bands: [],
    };
  },
  show(chart, lines, more) {
    // with the zoom that was chosen
    chart.onZoom = (view) => {
      looks.change(chart.box.id, { x: view?.x, y: view?.y });
      overlay.show(chart, lines, more);
    };
    chart.draw({ lines, ...more, view: looks.of(chart.box.id), height: 280 });
  },
  of(d, name, axis, hue) {
    // the median of a sweep's curves, and the curve of its best trial
    const isShown = (n) => ['finished', 'running'].includes(d.states[d.trials.state[d.at_of.get(n)]]),
      of = (n) => overlay.placed(d, name, axis, n),
      all = [...(d.sets.get(name)?.curve.keys() ?? [])].filter(isShown).map(of),
      parts = (values) => [0.5, 0.1, 0.9].map((q) => quantile(values, q)),
      rows = spread(all, parts, 1),
      column = (k) => rows.map((row) => row[k]),
      x = column(0),
      winner = of(d.trials.n[d.order[0]]),
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
};
$('#overlay-metric').addEventListener('change', ({ target }) => {
  overlay.metric = target.value;
  looks.forget(...OVER);
  overlay.reset();
  overlay.draw();
  address.write();
});
address.kept.push(
  {
    key: 'trials',
    isOfAll: true,
    get: () => wordsOf(overlay.trials),
    set: (text) => {
      overlay.trials = listOf(text);
      overlay.reset();
    },
  },
  {
    key: 'over',
    isOfAll: true,
    get: () => overlay.metric,
    set: (text) => {
      overlay.metric = text || null;
      overlay.reset();
    },
  },
);
S.blocks.push(overlay);
