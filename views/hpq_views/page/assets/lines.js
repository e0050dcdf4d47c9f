// A chart of lines by uPlot: zoom by drag, pan with shift, and the values at the cursor.
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
const LISTED = 8, // lines whose values the cursor shows
  SAMPLED = 50_000, // values that decide on what is far
  FAR = 100, // times what nine of ten values reach: the first losses of a curve are not so far
  DECADES = 10; // times what they span, on a logarithmic axis

function placeOf(xs, x) {
  // the index of the last x that is not beyond this one; -1: there is none
  let low = -1,
    high = xs.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  return low;
}
function valueAt({ x: xs, y: ys, isStep }, x) {
  // between two points in proportion; null in a gap and beyond the ends
  const k = placeOf(xs, x);
  if (k < 0 || ys[k] === null) return null;
  if (xs[k] === x) return ys[k];
  if (k + 1 >= xs.length || ys[k + 1] === null) return null;
  if (isStep) return ys[k];
  return ys[k] + ((x - xs[k]) / (xs[k + 1] - xs[k])) * (ys[k + 1] - ys[k]);
}
function over({ x: steps, y: ys }, by) {
  // a curve over the values of another one, whose last value holds beyond its end
  const last = by?.x.at(-1),
    found = steps
      .map((step, k) => [by ? valueAt(by, Math.min(step, last)) : null, ys[k]])
      .filter(([x]) => x !== null)
      .sort((a, b) => a[0] - b[0]);
  return { x: found.map(([x]) => x), y: found.map(([, y]) => y) };
}
function fitted(lines, log, within = null, kept = []) {
  // the ends of an axis that fits these lines, and what lies beyond it; `kept` do not
  const to = log ? Math.log10 : (v) => v,
    found = [];
  let missing = 0;
  for (const { x, y } of lines)
    for (let k = 0; k < y.length; k++) {
      if (y[k] === null || (within && (x[k] < within[0] || x[k] > within[1]))) continue;
      if (log && y[k] <= 0) missing += 1;
      else found.push(to(y[k]));
    }
  const every = Math.ceil(found.length / SAMPLED),
    sorted = found.filter((_, k) => k % every === 0).sort((a, b) => a - b),
    // one of fewer than ten values is more than a tenth of them, and no exception
    outer = Math.floor(sorted.length / 10),
    [lower, upper] = outer ? [sorted[outer], sorted.at(-1 - outer)] : [0, 0],
    reach = log
      ? DECADES * Math.max(upper - lower, 1)
      : FAR * Math.max(upper - lower, Math.abs(lower), Math.abs(upper)),
    [least, most] =
      outer && reach
        ? [Math.min(lower - reach, ...kept.map(to)), Math.max(upper + reach, ...kept.map(to))]
        : [-Infinity, Infinity],
    below = found.filter((v) => v < least),
    above = found.filter((v) => v > most),
    fit = endsOf(found.filter((v) => v >= least && v <= most)),
    from = (ends) => (log ? ends.map((v) => 10 ** v) : ends);
  return {
    range: from(fit),
    all: below.length + above.length ? from(endsOf(found)) : null,
    words: [
      farText(below, 'below', fit[0], from, Math.min),
      farText(above, 'above', fit[1], from, Math.max),
      missing ? `${trialsOf(missing, 'value')} of 0 or below: a logarithmic axis has no place` : '',
    ].filter(Boolean),
  };
}
function endsOf(values) {
  // with some room
  const low = values.reduce((a, b) => Math.min(a, b), Infinity),
    high = values.reduce((a, b) => Math.max(a, b), -Infinity),
    room = 0.04 * (high - low) || 0.1 * Math.abs(high) || 0.5;
  return values.length ? [low - room, high + room] : [0, 1];
}
function farText(some, side, end, from, extreme) {
  if (!some.length) return '';
  const [limit, last] = from([end, some.reduce((a, b) => extreme(a, b))]);
  return (
    `${trialsOf(some.length, 'value')} ${side} ${num(limit, 2)}, ` +
    `${side === 'above' ? 'up' : 'down'} to ${num(last, 3)}, not drawn: double-click draws all`
  );
}

function area(u, k) {
  // the path of a series that goes along one edge and back along the other
  const [xs, ys] = u.data[k],
    fill = new Path2D();
  for (let j = 0; j < xs.length; j++)
    fill.lineTo(u.valToPos(xs[j], 'x', true), u.valToPos(ys[j], 'y', true));
  return { stroke: null, fill, clip: null, flags: 0 };
}
const stepText = (v) => (Number.isSafeInteger(v) ? count(v) : num(v)); // a step, or a metric
const ending = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);
const LINEAR = window.uPlot?.paths.linear();
function seriesOf(one, lowest) {
  // of uPlot: what is drawn, and its points
  const common = { facets: [{ scale: 'x' }, { scale: 'y' }], scale: 'y' };
  if (one.low) {
    const at = (ys) => ys.map((y) => Math.max(y, lowest)),
      shape = { ...common, fill: one.color, width: 0, paths: area, points: { show: false } };
    return [shape, [[...one.x, ...one.x.toReversed()], at([...one.high, ...one.low.toReversed()])]];
  }
  const { x, y } = one,
    isAt = (k) => k >= 0 && k < y.length && y[k] !== null,
    alone = x.map((_, k) => k).filter((k) => isAt(k) && !isAt(k - 1) && !isAt(k + 1));
  const line = {
    ...common,
    stroke: one.color,
    width: one.width ?? 1.6,
    dash: one.dash,
    paths: one.isStep ? uPlot.paths.stepped({ align: 1 }) : LINEAR,
    points: {
      show: alone.length > 0,
      filter: () => alone,
      size: 5 + (one.width ?? 1.6),
      width: 0,
      fill: one.color,
      stroke: one.color,
    },
  };
  return [line, [x, lowest > -Infinity ? y.map((v) => (v === null || v > 0 ? v : null)) : y]];
}

class LineChart {
  // `onZoom(view)` is told of a view chosen by hand, null of a reset; `onPick(line)` of a click
  constructor(box, { onZoom, onPick } = {}) {
    const note = el('p', '', { className: 'soft' });
    Object.assign(this, { box, note, onZoom, onPick, plot: null, shown: null });
    box.chart = this;
    new ResizeObserver(() => {
      if (this.plot && this.box.clientWidth !== this.plot.width) this.draw(this.shown);
    }).observe(box);
  }

  // `lines` and `bands` in the order of drawing; a band has `low` and `high` in place of `y`.
  // `x` and `y` have a name; `x.isWhole` has marks of whole numbers only; `y.kept` are values that
  // no fit leaves out; `view` has the ranges that a zoom chose; `notes` stand below, after what the
  // axis leaves out.
  draw(shown) {
    this.shown = shown;
    this.isLate = this.isPressed; // a new plot would end the drag: its end draws
    if (this.isLate) return;
    const { lines, bands = [], x, y, view = {}, height = 230, notes = [] } = shown,
      width = this.box.clientWidth;
    if (!width || !window.uPlot) return;
    if (!lines.length && !bands.length) {
      // uPlot needs a series
      this.plot?.destroy();
      this.plot = null;
      this.note.textContent = notes.join('; ');
      return;
    }
    const every = lines.flatMap((one) => [one.x[0] ?? 0, one.x.at(-1) ?? 0]),
      lowX = Math.min(...every, x.low ?? 0),
      highX = Math.max(...every),
      across = view.x ?? [lowX, highX > lowX ? highX : lowX + 1],
      fit = fitted([...lines, ...edges(bands)], y.log, across, y.kept),
      up = view.y ?? fit.range;
    const lowest = y.log ? up[0] : -Infinity,
      series = [...bands, ...lines].map((one) => seriesOf(one, lowest)),
      cursor = this.plot?.cursor.left >= 0 ? this.plot.cursor : null;
    const old = cursor && { left: cursor.left, top: cursor.top };
    this.plot?.destroy();
    this.plot = new uPlot(
      this.options(width, height, across, up, series.map(([one]) => one)),
      [null, ...series.map(([, data]) => data)],
      this.box,
    );
    this.plot.over.addEventListener('click', (event) => this.pick(event));
    this.ranges = { x: across, y: up };
    if (old) this.plot.setCursor(old);
    this.all = fit.all;
    this.note.textContent = [...(view.y ? [] : fit.words), ...notes].join('; ');
    this.box.append(this.note); // below the plot
  }

  options(width, height, across, up, series) {
    const { x, y } = this.shown,
      font = `12px ${getComputedStyle(document.body).fontFamily}`,
      axis = {
        stroke: css('--soft'),
        font,
        labelFont: font,
        labelSize: 20,
        grid: { stroke: css('--line'), width: 1 },
        ticks: { show: false },
      };
    const marks = (low, high, most) =>
      y.log
        ? logTicks(Math.log10(low), Math.log10(high)).map(([at]) => 10 ** at)
        : ticks(low, high, most);
    return {
      mode: 2,
      width,
      height,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, auto: false, range: () => this.ranges?.x ?? across },
        y: { auto: false, distr: y.log ? 3 : 1, range: () => this.ranges?.y ?? up },
      },
      axes: [
        {
          ...axis,
          size: 26,
          label: x.name,
          splits: (u, _, low, high) =>
            ticks(low, high, Math.max(2, width / 90)).filter((v) => !x.isWhole || v % 1 === 0),
          values: (u, at) => at.map(x.text ?? stepText),
        },
        {
          ...axis,
          scale: 'y',
          size: 54,
          label: ending(`${y.name}${y.log ? ' (log)' : ''}`, (height - 54) / 7),
          splits: (u, _, low, high) => marks(low, high, height / 45),
          values: (u, at) => at.map((v) => num(v)),
          filter: (u, at) => at,
        },
      ],
      series: [null, ...series],
      cursor: {
        y: false,
        points: { show: false },
        drag: { setScale: false, x: true, y: true, uni: 24, dist: 4 },
        bind: {
          mousedown: (u, _, begin) => (event) => {
            this.press();
            if (event.shiftKey) return this.pan(event);
            this.from = [event.clientX, event.clientY];
            begin(event);
          },
          dblclick: () => () => this.reset(),
        },
      },
      hooks: {
        setSelect: [(u) => this.zoom(u)],
        setCursor: [(u) => this.point(u)],
      },
    };
  }

  press() {
    this.isPressed = true;
    const release = () => {
      this.isPressed = false;
      setTimeout(() => this.isLate && this.draw(this.shown));
    };
    addEventListener('mouseup', release, { capture: true, once: true });
  }

  reset() {
    // all that fits, and then all
    const { view } = this.shown,
      isWhole = !view?.x && !view?.y;
    this.onZoom?.(isWhole && this.all ? { y: this.all } : null);
  }

  zoom(u) {
    const { left, top, width, height } = u.select;
    if (!width || !height) return;
    const isWide = width < u.over.clientWidth - 1,
      isHigh = height < u.over.clientHeight - 1;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom?.({
      x: isWide ? [u.posToVal(left, 'x'), u.posToVal(left + width, 'x')] : this.shown.view?.x,
      y: isHigh ? [u.posToVal(top + height, 'y'), u.posToVal(top, 'y')] : undefined,
    });
  }

  pan(event) {
    const { clientX, clientY } = event,
      { x, y } = this.ranges,
      { log } = this.shown.y,
      { clientWidth, clientHeight } = this.plot.over;
    const moved = (ends, share) => {
        const by = share * (ends[1] - ends[0]);
        return ends.map((v) => v + by);
      },
      to = log ? (ends) => ends.map(Math.log10) : (ends) => ends,
      from = log ? (ends) => ends.map((v) => 10 ** v) : (ends) => ends;
    const move = (now) => {
      this.ranges = {
        x: moved(x, (clientX - now.clientX) / clientWidth),
        y: from(moved(to(y), (now.clientY - clientY) / clientHeight)),
      };
      this.show();
    };
    const end = () => {
      removeEventListener('mousemove', move);
      removeEventListener('mouseup', end);
      this.onZoom?.(this.ranges);
    };
    this.from = null; // no click
    addEventListener('mousemove', move);
    addEventListener('mouseup', end);
  }

  show() {
    for (const name of ['x', 'y'])
      this.plot.setScale(name, { min: this.ranges[name][0], max: this.ranges[name][1] });
    this.plot.redraw();
  }

  nearest(u) {
    // the lines around the cursor at the step that the nearest of them has, the nearest first
    const { left, top } = u.cursor,
      named = this.shown.lines.filter((one) => one.name),
      wanted = u.posToVal(left, 'x'),
      away = (v) => (v === null ? Infinity : Math.abs(u.valToPos(v, 'y') - top));
    let nearest = null,
      x = wanted,
      least = Infinity;
    for (const one of named) {
      const k = placeOf(one.x, wanted),
        found = [k, k + 1].filter((j) => j >= 0 && j < one.x.length && one.y[j] !== null);
      if (!found.length) continue;
      const j = found.reduce((a, b) =>
          Math.abs(one.x[b] - wanted) < Math.abs(one.x[a] - wanted) ? b : a,
        ),
        far = Math.min(
          away(valueAt(one, wanted)),
          Math.hypot(away(one.y[j]), u.valToPos(one.x[j], 'x') - left),
        );
      if (far < least) {
        least = far;
        nearest = one;
        x = one.x[j];
      }
    }
    const some = named
      .map((line) => ({ line, value: valueAt(line, x) }))
      .filter(({ value }) => value !== null)
      .sort((a, b) => (b.line === nearest) - (a.line === nearest) || away(a.value) - away(b.value));
    return { x, least, some, nearest };
  }

  point(u) {
    const { left, event } = u.cursor;
    if (!event || this.isFollowing) return; // set by another chart, or after a redraw
    if (left < 0) return this.leave();
    const { x, some, nearest } = this.nearest(u);
    if (!some.length) return this.leave();
    const head = `${this.shown.x.name} ${(this.shown.x.text ?? stepText)(x)}`,
      rows = some.slice(0, LISTED).sort((a, b) => b.value - a.value);
    hint(event, [
      el('b', head),
      ...rows.map(({ line, value }) => {
        const row = el('div', '', { className: line === nearest ? 'near' : '' }),
          mark = el('i', '■ ');
        mark.style.color = line.color;
        row.append(mark, `${measure(value)}  ${line.name}`);
        return row;
      }),
      ...(some.length > LISTED ? [el('div', `${count(some.length - LISTED)} more`)] : []),
      ...(nearest.about ? [el('div', nearest.about())] : []),
    ]);
    this.onPoint?.(u.posToVal(left, 'x'));
  }

  leave() {
    hint(null);
    this.onPoint?.(null);
  }

  follow(x) {
    // the cursor of a chart beside it
    if (!this.plot) return;
    this.isFollowing = true;
    this.plot.setCursor({ left: x === null ? -10 : this.plot.valToPos(x, 'x'), top: 0 });
    this.isFollowing = false;
  }

  pick(event) {
    const from = this.from;
    if (!from || Math.hypot(event.clientX - from[0], event.clientY - from[1]) > 4) return;
    const { least, nearest } = this.nearest(this.plot);
    if (nearest && least < 12) this.onPick?.(nearest);
  }
}
const edges = (bands) =>
  bands.flatMap(({ x, low, high }) => [
    { x, y: low },
    { x, y: high },
  ]);
// What was chosen of a chart whose lines have no menus, in the address: its scale and its zoom.
const looks = {
  some: new Map(), // by the chart's name
  of: (name) => looks.some.get(name) ?? {},
  change(name, more) {
    looks.some.set(name, { ...looks.of(name), ...more });
    address.write();
  },
  forget(...names) {
    names.forEach((name) => looks.some.delete(name));
  },
};
const scaleText = (log) => (log === undefined ? '' : log ? 'log' : 'linear');
const scaleOf = (word) => (word ? word === 'log' : undefined);
address.kept.push({
  key: 'charts',
  get: () =>
    wordsOf(
      [...looks.some]
        .map(([name, { log, x, y }]) => [scaleText(log), rangeText(x), rangeText(y), name])
        .filter(([log, x, y]) => log || x || y)
        .map((one) => one.join(':')),
    ),
  set: (text) => {
    looks.some.clear();
    for (const word of listOf(text)) {
      const [log, x, y, ...name] = word.split(':');
      looks.some.set(name.join(':'), {
        log: scaleOf(log),
        x: numbersOf(x ?? '') ?? undefined,
        y: numbersOf(y ?? '') ?? undefined,
      });
    }
  },
});
