// Curves of a sweep: panels of metrics, what their lines are, smoothing, groups, notes beside them.
const RUNTIME = '_runtime'; // seconds by step, a metric of every trial
const REREAD = 5000; // ms between two reads of a metric that changed
const GROUPS = 8; // colors of groups
const GRID = 120; // points of a mean
const V = { panels: null, x: null, smooth: 0, by: null, band: null, range: null }; // null: the default

const roleOf = (name) => {
  const found = name.match(/(?:^|[^a-z])(train|val|eval|test)(?:ing|id|idation)?(?=[^a-z]|$)/i);
  return found ? found[1].toLowerCase().replace('eval', 'val') : '';
};
function besideOf(name, names) {
  // the same of training beside validation
  const wanted = { train: ['val', ''], '': ['val', 'train'] }[roleOf(name)] ?? ['train', ''];
  return names
    .filter((m) => m !== name && stem(m) === stem(name) && wanted.includes(roleOf(m)))
    .sort((a, b) => wanted.indexOf(roleOf(a)) - wanted.indexOf(roleOf(b)))[0];
}
function panelsOf(d) {
  // as chosen, or the sweep's metric
  const chosen = V.panels?.filter(({ name }) => d.metrics.includes(name) || name in d.system);
  if (chosen?.length) return chosen;
  const name = d.metrics.includes(d.metric) ? d.metric : d.metrics[0];
  const names = [name, name && besideOf(name, d.metrics)].filter((one) => one !== undefined);
  return names.map((one) => ({ name: one }));
}
async function load(d, name) {
  // of the dashboard, which sends a metric when it is shown, and finer than with the page
  const old = d.sets.get(name),
    isCoarse = old?.c?.per > 1 && !old.isFine && d.trials.n.length <= MANY,
    // Of many trials, an answer has a sample and those of the overlay.
    chosen = name === d.first ? [] : overlay.numbers(d),
    isLacking = chosen.some((n) => old && !old.curve.has(n) && !old.chosen?.includes(n)),
    wait = old && !isLacking ? REREAD - (performance.now() - (old.at ?? -REREAD)) : 0;
  if (!S.onMetric || old?.isAsked || (old && !old.isOld && !isCoarse && !isLacking)) return;
  if (wait > 0) {
    old.timer ??= setTimeout(() => {
      old.timer = undefined;
      if (d === S.d) curves.draw();
    }, wait);
    return;
  }
  const asked = { ...(old ?? { c: null, curve: new Map() }), isOld: false, isAsked: true };
  d.sets.set(name, asked);
  const c = await S.onMetric(d, name, chosen).catch(() => null),
    now = { isOld: asked.isOld || !c, isAsked: false, at: performance.now(), chosen };
  if (c) d.sets.set(name, { ...now, c, curve: unpack(c), isFine: true });
  else d.sets.set(name, { ...asked, ...now }); // a later draw asks again
  if (!c) return;
  if (d === S.d) curves.draw();
  overlay.reset();
  overlay.draw();
}
// What the x axis of a metric shows: as chosen, else as the script defined it. What a trial uses of
// its machine has no step.
const xOf = (d, name) => (name in d.system ? RUNTIME : (V.x ?? d.by[name] ?? 'step'));
// Whether the curves of a metric are over that axis as they come, or over another metric.
const isOwn = (d, name) => name in d.system || xOf(d, name) === 'step';
const titleOf = (d, name) => d.system[name] ?? name;

function binsOf(values) {
  // of numbers: as many in each
  const sorted = [...values].sort((a, b) => a - b),
    ends = Array.from({ length: 6 }, (_, k) => quantile(sorted, k / 5));
  return (v) => {
    const k = clamp(ends.findIndex((end, j) => j && v <= end) - 1, 0, 4);
    return [`${num(ends[k], 3)} to ${num(ends[k + 1], 3)}`, k];
  };
}
function settingNames(d) {
  // as few parameters as tell the settings apart, but three if so many vary
  const axes = d.axes.filter((a) => new Set(a.values).size > 1),
    leads = [...new Set(d.lead)],
    text = (i, most) =>
      axes
        .slice(0, most)
        .map((a) => `${a.name}=${num(a.values[d.lead[i]]) || 'none'}`)
        .join(', ');
  let most = Math.min(3, axes.length);
  while (most < axes.length && new Set(leads.map((i) => text(i, most))).size < leads.length)
    most += 1;
  return (i) => text(i, most) || `#${d.trials.n[d.lead[i]]}`;
}
function groupsOf(d, some) {
  // trials by what the menu chose, with a color each; null: each line has its rank's
  const by = byOf(d);
  if (by === 'rank') return null;
  const axis = d.axes.find((one) => one.name === by.slice(2)),
    groups = new Map(),
    add = (i, label, order) => {
      if (!groups.has(label)) groups.set(label, { label, order, some: [] });
      groups.get(label).some.push(i);
    };
  if (by === 'setting') {
    const sets = new Map();
    for (const i of some) sets.set(d.trials.group[i], [...(sets.get(d.trials.group[i]) ?? []), i]);
    const labels = settingNames(d),
      order = (members) => d.rank.get(d.lead[members[0]]) ?? Infinity,
      found = [...sets.values()].sort((a, b) => order(a) - order(b));
    return found.map((members) => ({
      label: labels(members[0]),
      some: members,
      color: color(members[0]),
    }));
  }
  if (!axis) return null;
  const values = some.map((i) => axis.values[i]),
    known = values.filter((v) => v !== null),
    distinct = new Set(known),
    isNumber = axis.kind !== 'category',
    bin = isNumber && distinct.size > GROUPS ? binsOf(known) : null;
  some.forEach((i, k) => {
    const v = values[k];
    if (v === null) add(i, 'none', Infinity);
    else if (bin) add(i, ...bin(v));
    else add(i, String(num(v)), isNumber ? v : 0);
  });
  let found = [...groups.values()].sort(
    (a, b) => a.order - b.order || a.label.localeCompare(b.label, 'en', { numeric: true }),
  );
  if (found.length > GROUPS) {
    const most = [...found].sort((a, b) => b.some.length - a.some.length).slice(0, GROUPS - 1),
      rest = found.filter((one) => !most.includes(one));
    found = found.filter((one) => most.includes(one));
    found.push({
      label: `${count(rest.length)} others`,
      some: rest.flatMap((one) => one.some),
    });
  }
  const isOrdered = isNumber && found.length > 2;
  found.forEach((one, k) => {
    one.color = isOrdered ? rampAt(k / (found.length - 1)) : HUES[k % HUES.length];
  });
  return found;
}
const hasSettings = (d) => d.replicates > 1;
function byOf(d) {
  const isKnown = (by) => by === 'rank' || by === 'setting' || d.axes.some((a) => `p:${a.name}` === by);
  if (V.by && isKnown(V.by)) return V.by;
  return hasSettings(d) ? 'setting' : 'rank';
}
const bandOf = (d) => V.band ?? (byOf(d) === 'setting' ? 'range' : 'lines');

function gridOf(some) {
  // the steps of few curves, or as many as a mean needs
  const steps = [...new Set(some.flatMap((c) => c.x))].sort((a, b) => a - b);
  if (steps.length <= 2 * GRID) return steps;
  const reach = steps.at(-1) - steps[0];
  return Array.from({ length: GRID + 1 }, (_, k) => steps[0] + (k / GRID) * reach);
}
function spread(some, parts, least) {
  // rows of a step, and what `parts` makes of the sorted values of at least so many curves there
  const rows = [];
  for (const at of gridOf(some)) {
    const found = some.map((c) => valueAt(c, at)).filter((v) => v !== null);
    if (found.length >= least) rows.push([at, ...parts(found.sort((a, b) => a - b))]);
  }
  return rows;
}
function meanOf(values) {
  let sum = 0;
  for (const v of values) sum += v;
  return sum / values.length;
}
const BANDS = {
  range: (values) => [meanOf(values), values[0], values.at(-1)],
  sd: (values) => {
    const mean = meanOf(values),
      squares = values.map((v) => (v - mean) ** 2),
      sd = values.length > 1 ? Math.sqrt((meanOf(squares) * values.length) / (values.length - 1)) : 0;
    return [mean, mean - sd, mean + sd];
  },
};
const faint = (text, alpha) =>
  text.startsWith('#')
    ? text + Math.round(alpha * 255).toString(16).padStart(2, '0')
    : text.replace(/,[\d.]+\)$/, `,${alpha})`);

function smoothed(ys, weight) {
  // an exponential mean without the pull of its start, as TensorBoard's
  let sum = 0,
    n = 0;
  return ys.map((y) => {
    if (y === null) return null;
    n += 1;
    sum = weight * sum + (1 - weight) * y;
    return sum / (1 - weight ** n);
  });
}
function linesOf(d, name, set) {
  // what a panel draws of a metric, and what its title says
  const { trials: t } = d,
    every = S.kept.filter((i) => set.curve.has(t.n[i])),
    isMany = every.length > MANY,
    some = drawn(S.brush.size ? Infinity : MANY, every),
    axis = isOwn(d, name) ? null : d.sets.get(xOf(d, name))?.curve,
    placed = (n) =>
      isOwn(d, name) ? set.curve.get(n) : over(set.curve.get(n), axis?.get(n)),
    raw = new Map(every.map((i) => [i, placed(t.n[i])])),
    isSmooth = V.smooth > 0,
    shownAs = (i) => {
      const one = raw.get(i);
      return isSmooth ? { x: one.x, y: smoothed(one.y, V.smooth) } : one;
    },
    groups = groupsOf(d, every),
    kind = bandOf(d),
    lines = [],
    bands = [],
    words = [];
  if (groups && kind !== 'lines') {
    for (const one of groups) {
      const rows = spread(one.some.map(shownAs), BANDS[kind], 1),
        x = rows.map((row) => row[0]);
      if (!rows.length) continue;
      if (one.some.length > 1)
        bands.push({
          x,
          low: rows.map((row) => row[2]),
          high: rows.map((row) => row[3]),
          color: faint(one.color, 0.18),
        });
      lines.push({
        x,
        y: rows.map((row) => row[1]),
        color: one.color,
        width: 2,
        name: one.some.length > 1 ? `${one.label}, mean of ${count(one.some.length)}` : one.label,
        i: one.some.length > 1 ? undefined : one.some[0],
      });
    }
    lines.reverse(); // the best on top
    words.push(
      `${trialsOf(every.length)} in ${trialsOf(groups.length, 'group')}`,
      kind === 'sd' ? 'bands are ± one standard deviation' : 'bands are lowest to highest',
    );
    if (isSmooth) words.push('smoothed');
    return { lines, bands, words, groups, every };
  }
  const groupBy = new Map(groups?.flatMap((one) => one.some.map((i) => [i, one]))),
    paint = (i, alpha) => (groupBy.has(i) ? faint(groupBy.get(i).color, alpha) : color(i, alpha)),
    isThin = some.length > 100;
  if (isMany) {
    const rows = spread(
      every.map((i) => raw.get(i)),
      (values) => [quantile(values, 0.1), quantile(values, 0.9)],
      10,
    );
    bands.push({
      x: rows.map((row) => row[0]),
      low: rows.map((row) => row[1]),
      high: rows.map((row) => row[2]),
      color: faint(css('--accent'), 0.16),
    });
  }
  const dash = (i) => (d.states[t.state[i]] === 'pruned' ? [4, 3] : undefined);
  if (isSmooth && !isThin)
    for (const i of some) lines.push({ ...raw.get(i), color: paint(i, 0.22), width: 1 });
  for (const i of some) {
    const isBest = isMany && d.rank.get(d.lead[i]) < BEST;
    lines.push({
      ...shownAs(i),
      color: paint(i, isMany && !isBest ? 0.3 : 0.85),
      width: isThin ? (isBest ? 1.8 : 0.8) : 1.6,
      dash: dash(i),
      name: `#${t.n[i]}${groups ? `  ${groupBy.get(i).label}` : ''}`,
      about: () => about(i).split('\n').slice(1, 5).join('\n'),
      i,
    });
  }
  words.push(shown(some.length, every.length, 'trial'));
  if (isMany) words.push('the band holds 80%');
  if (isSmooth) words.push(isThin ? 'smoothed' : 'smoothed; pale: as logged');
  if (every.includes(S.sel)) {
    const line = shownAs(S.sel);
    lines.push({ ...line, color: css('--card'), width: 6 });
    lines.push({ ...line, color: css('--ink'), width: 3, name: `#${t.n[S.sel]}`, i: S.sel });
  }
  return { lines, bands, words, groups, every };
}

const shownPanes = new Map();
const xName = (x) => (x === RUNTIME ? 'time' : x);
const panes = {
  // one figure for each panel, which stays while its metric is shown
  of(name) {
    let one = shownPanes.get(name);
    if (one) return one;
    const box = el('figure'),
      caption = el('figcaption'),
      plot = el('div', '', { className: 'lines', role: 'img' }),
      log = el('button', 'log', { title: 'Logarithmic or linear axis' }),
      title = titleOf(S.d, name),
      close = el('button', '×', { title: `Remove ${title}` }),
      state = el('span', '', { className: 'soft' });
    close.ariaLabel = close.title;
    box.dataset.panel = name;
    caption.append(el('b', title), state, log, close);
    box.append(caption, plot);
    const chart = new LineChart(plot, {
      onZoom: (view) => {
        V.range = view?.x ? { ends: view.x, x: xOf(S.d, name) } : null;
        panes.change(name, { y: view?.y });
      },
      onPick: (line) => line.i !== undefined && select(line.i),
    });
    chart.onPoint = (x) => {
      for (const [other, it] of shownPanes)
        if (other !== name && it.box.isConnected && xOf(S.d, other) === xOf(S.d, name))
          it.chart.follow(x);
    };
    one = { box, chart, state, log, close };
    log.onclick = () => panes.change(name, { log: log.ariaPressed !== 'true', y: undefined });
    close.onclick = () => {
      V.panels = panelsOf(S.d).filter((it) => it.name !== name);
      curves.changed();
    };
    shownPanes.set(name, one);
    return one;
  },
  change(name, more) {
    V.panels = panelsOf(S.d).map((one) => (one.name === name ? { ...one, ...more } : one));
    curves.changed();
  },
};

const curves = {
  changed() {
    address.write();
    curves.draw();
  },
  draw() {
    const d = S.d,
      some = panelsOf(d),
      box = $('#curves-panels');
    $('#curves').hidden = !some.length;
    if (!some.length) return;
    curves.menus(d, some);
    const wanted = some.map(({ name }) => panes.of(name).box);
    if (wanted.some((one, k) => box.children[k] !== one) || box.children.length !== wanted.length)
      box.replaceChildren(...wanted);
    const said = [];
    let groups = null;
    curves.marked = S.sel;
    for (const one of some) {
      const { chart, state, log, close } = panes.of(one.name),
        x = xOf(d, one.name);
      load(d, one.name);
      if (!isOwn(d, one.name)) load(d, x);
      const set = d.sets.get(one.name),
        isLog = one.log ?? (one.name === d.metric ? d.log : (set?.c?.log ?? false));
      log.ariaPressed = String(isLog);
      chart.box.ariaLabel =
        `Curves of ${titleOf(d, one.name)} by ${xName(x)}${isLog ? ', logarithmic' : ''}; ` +
        'the table below has all trials';
      close.hidden = some.length < 2;
      const isRead = set?.isAsked || S.onMetric;
      state.textContent = set?.c ? '' : isRead ? 'is read' : 'has no curve here';
      if (!set?.c) continue;
      const found = linesOf(d, one.name, set),
        gaps = found.every.filter((i) => set.curve.get(d.trials.n[i]).y.includes(null)).length;
      chart.draw({
        ...found,
        x: {
          name: xName(x),
          text: x === RUNTIME ? time : undefined,
          low: x === 'step' ? 0 : undefined,
        },
        y: { name: titleOf(d, one.name), log: isLog },
        view: { x: V.range?.x === x ? V.range.ends : null, y: one.y },
        height: innerWidth < 760 ? 220 : 250,
        notes: [
          gaps ? `${gaps} with NaN, drawn as a gap` : '',
          set.c.per > 1 ? `a point is the mean of up to ${count(set.c.per)} values` : '',
        ].filter(Boolean),
      });
      groups ??= found.groups;
      if (!said.length) said.push(...found.words);
    }
    curves.legend(groups);
    const axes = [...new Set(some.map(({ name }) => xName(xOf(d, name))))].join(' and '),
      names = some.map(({ name }) => titleOf(d, name)).join(' and ');
    title('curves', `${names} by ${axes}; ${said.join('; ')}`);
  },
  mark() {
    if (curves.marked !== S.sel) curves.draw();
  },
  menus(d, some) {
    const names = [...d.metrics, ...Object.keys(d.system)].filter(
        (name) => !some.some((one) => one.name === name),
      ),
      axes = d.axes.filter((a) => new Set(a.values).size > 1),
      by = byOf(d);
    fillMenu($('#metric'), ['', ...names], '', { '': 'Add a metric …', ...d.system });
    $('#metric').hidden = !names.length;
    const isDefined = Object.keys(d.by).length > 0;
    fillMenu(
      $('#curves-x'),
      [...(isDefined ? [''] : []), 'step', RUNTIME, ...d.metrics],
      V.x ?? (isDefined ? '' : 'step'),
      { '': 'as the script defines', [RUNTIME]: 'time' },
    );
    fillMenu(
      $('#curves-by'),
      ['rank', ...(hasSettings(d) ? ['setting'] : []), ...axes.map((a) => `p:${a.name}`)],
      by,
      { setting: 'replicates', ...Object.fromEntries(axes.map((a) => [`p:${a.name}`, a.name])) },
    );
    fillMenu($('#curves-band'), ['lines', 'range', 'sd'], bandOf(d), {
      lines: 'each line',
      range: 'mean, lowest to highest',
      sd: 'mean ± sd',
    });
    $('#curves-band').parentNode.hidden = by === 'rank';
    $('#curves-smooth').value = V.smooth;
  },
  legend(groups) {
    const many = groups && groups.length > GROUPS;
    $('#curves-legend').replaceChildren(
      ...(groups && !many ? groups : []).map((one) => {
        const mark = el('i', '■'),
          part = el('span', '');
        mark.style.color = one.color;
        part.append(mark, ` ${one.label} (${count(one.some.length)})`);
        return part;
      }),
    );
  },
};
const chosenBy = {
  '#metric': (name) => {
    if (name) V.panels = [...panelsOf(S.d), { name }];
  },
  '#curves-x': (name) => {
    V.x = name || null;
    V.range = null;
  },
  '#curves-by': (by) => {
    V.by = by;
  },
  '#curves-band': (band) => {
    V.band = band;
  },
};
for (const [menu, choose] of Object.entries(chosenBy))
  $(menu).addEventListener('change', ({ target }) => {
    choose(target.value);
    curves.changed();
  });
$('#curves-smooth').addEventListener('input', ({ target }) => {
  V.smooth = +target.value;
  curves.changed();
});
const panelText = ({ name, log, y }) => [scaleText(log), rangeText(y), name].join(':');
const panelOf = (word) => {
  const [log, y, ...name] = word.split(':');
  return {
    name: name.join(':'),
    log: scaleOf(log),
    y: numbersOf(y) ?? undefined,
  };
};
address.kept.push(
  {
    key: 'panels',
    get: () => wordsOf((V.panels ?? []).map(panelText)),
    set: (text) => {
      V.panels = text ? listOf(text).map(panelOf) : null;
    },
  },
  {
    key: 'x',
    get: () => V.x,
    set: (text) => {
      V.x = ['step', RUNTIME, ...S.d.metrics].includes(text) ? text : null;
    },
  },
  {
    key: 'range',
    get: () => (V.range ? `${rangeText(V.range.ends)}:${V.range.x}` : ''),
    set: (text) => {
      const [ends, ...x] = text.split(':');
      V.range = numbersOf(ends) && { ends: numbersOf(ends), x: x.join(':') };
    },
  },
  {
    key: 'smooth',
    get: () => (V.smooth ? String(V.smooth) : ''),
    set: (text) => {
      V.smooth = clamp(Number(text) || 0, 0, 0.99);
    },
  },
  {
    key: 'by',
    get: () => V.by,
    set: (text) => {
      V.by = text || null;
    },
  },
  {
    key: 'band',
    get: () => V.band,
    set: (text) => {
      V.band = text === 'lines' || text in BANDS ? text : null;
    },
  },
);
S.blocks.push(curves);
