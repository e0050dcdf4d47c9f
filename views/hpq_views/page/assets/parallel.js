// Parallel coordinates, on a 2-D canvas.
function surface(id, draw) {
  // sharp on every screen; redrawn when its size changes
  const box = $('#' + id),
    pen = box.getContext('2d', { willReadFrequently: true });
  const redraw = () => {
    const ratio = devicePixelRatio || 1,
      [w, h] = [box.clientWidth, box.clientHeight];
    if (!w || !S.d) return;
    Object.assign(box, { width: w * ratio, height: h * ratio });
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `${css('--s')} ${getComputedStyle(document.body).fontFamily}`;
    draw(pen, w, h);
  };
  new ResizeObserver(redraw).observe(box);
  return { box, draw: redraw };
}
const batch = {};
function inSlices(id, some, stroke, then) {
  // a long list must not freeze the page
  const mine = (batch[id] = (batch[id] ?? 0) + 1);
  const step = (from) => {
    for (const end = Math.min(some.length, from + 1500); from < end; from++) stroke(some[from]);
    if (from < some.length)
      return requestAnimationFrame(() => mine === batch[id] && S.d && step(from));
    then();
  };
  step(0);
}
const short = (text, pen, room) => {
  text = String(text);
  if (pen.measureText(text).width <= room) return text;
  while (text.length > 1 && pen.measureText(text + '…').width > room) text = text.slice(0, -1);
  return text + '…';
};

const NONE = -0.09; // the place of a missing value, below the axis
function axesOf(d) {
  // how each axis places a trial between 0 and 1
  const varies = d.axes.filter((a) => new Set(a.values).size > 1).slice(0, 11);
  const axes = varies.map((a, k) => ({ ...a, ...placing(a, random(k + 7)) }));
  for (const one of d.measured.filter((metric) => metric.name)) {
    const { low, high } = one,
      at = (v) => (one.max ? v - low : high - v) / (high - low),
      marks = one.log ? logTicks(low, high) : ticks(low, high).map((v) => [v, num(v)]);
    axes.push({
      name: one.name,
      kind: one.log ? 'log' : '',
      place: (i) => (one.value(i) === null ? NONE : clamp(at(one.to(one.value(i))), 0, 1)),
      marks: marks.map(([v, text]) => [at(v), text]),
      isMetric: true,
    });
  }
  return axes;
}
function placing(a, next) {
  const known = a.values.filter((v) => v !== null),
    jitter = a.values.map(() => next() - 0.5);
  const at = (to) => (i) => (a.values[i] === null ? NONE : clamp(to(a.values[i], i), 0, 1));
  if (a.kind === 'category') {
    const names = [...new Set(known)].sort((x, y) =>
      String(x).localeCompare(String(y), 'en', { numeric: true }),
    );
    const slot = new Map(names.map((v, k) => [v, (k + 0.5) / names.length])),
      wide = 0.3 / names.length;
    return {
      place: at((v, i) => slot.get(v) + jitter[i] * wide),
      marks: names.length > 12 ? [] : names.map((v) => [slot.get(v), v]),
    };
  }
  const to = { linear: (v) => v, log: Math.log10 }[a.kind];
  const ends = known
    .map(to)
    .reduce((m, v) => [Math.min(m[0], v), Math.max(m[1], v)], [Infinity, -Infinity]);
  const distinct = [...new Set(known)],
    few = distinct.length <= 8,
    reach = (ends[1] - ends[0]) * 1.08 || 1,
    isOne = ends[0] === ends[1], // beside missing values: half-way
    low = ends[0] - reach * (isOne ? 0.5 : 0.037);
  const spread = few ? 0.025 : 0; // lines of equal values lie beside each other
  const marks = few
    ? distinct.sort((x, y) => x - y).map((v) => [to(v), num(v)])
    : a.kind === 'log'
      ? logTicks(...ends)
      : ticks(...ends).map((v) => [v, num(v)]);
  return {
    place: at((v, i) => (to(v) - low) / reach + jitter[i] * spread),
    marks: marks.map(([v, text]) => [(v - low) / reach, text]),
  };
}

// Others have no place on the metric's axis.
const lines = () => drawn(S.brush.size ? Infinity : MANY, S.kept.filter(S.d.isRanked));
const PAD = { left: 24, right: 60, top: 34, bottom: 40 };
const parallel = surface('parallel-canvas', (pen, w, h) => {
  const d = S.d,
    axes = S.axes,
    high = h - PAD.top - PAD.bottom;
  if (!axes.length) return;
  const gap = (w - PAD.left - PAD.right) / Math.max(1, axes.length - 1);
  axes.forEach((axis, k) => {
    axis.x = PAD.left + k * gap;
  });
  S.toY = (at) => PAD.top + (1 - at) * high;
  const some = lines(),
    kept = new Set(some),
    thin = some.length > 100;
  const line = (i, style, width) => {
    pen.beginPath();
    axes.forEach((axis, k) => {
      const y = S.toY(axis.place(i));
      if (!k) return pen.moveTo(axis.x, y);
      const [x0, y0] = [axes[k - 1].x, S.toY(axes[k - 1].place(i))],
        mid = (x0 + axis.x) / 2;
      if (some.length > 2000) pen.lineTo(axis.x, y);
      else pen.bezierCurveTo(mid, y0, mid, y, axis.x, y);
    });
    pen.setLineDash(d.states[d.trials.state[i]] === 'pruned' ? [5, 4] : []);
    Object.assign(pen, { strokeStyle: style, lineWidth: width });
    pen.stroke();
  };
  if (S.brush.size)
    for (const i of drawn(MANY, d.order)) if (!kept.has(i)) line(i, css('--line'), 1);
  inSlices(
    'parallel',
    some,
    (i) => line(i, color(i, thin ? 0.55 : 0.85), thin ? 1 : 1.6),
    () => {
      pen.setLineDash([]);
      if (S.sel >= 0 && (!S.brush.size || kept.has(S.sel))) {
        line(S.sel, css('--card'), 6);
        line(S.sel, css('--ink'), 3);
      }
      pen.setLineDash([]);
      axes.forEach((axis, k) => drawAxis(pen, axis, k, gap, high));
    },
  );
  const hidden = d.axes.length - axes.filter((a) => !a.isMetric).length;
  title(
    'parallel',
    (some.length
      ? `${shown(some.length, d.order.length)}, of those with a result`
      : 'no trial with a result is inside every range') +
      beyond() +
      (hidden ? `; ${hidden} constant or less important not shown` : '') +
      '; a missing value lies below its axis',
  );
});
function drawAxis(pen, axis, k, gap, high) {
  const isLast = k === S.axes.length - 1,
    room = isLast ? PAD.right - 10 : Math.max(30, gap - 14);
  Object.assign(pen, {
    strokeStyle: css('--soft'),
    lineWidth: 1,
    lineJoin: 'round',
    textAlign: 'left',
    textBaseline: 'alphabetic',
  });
  pen.strokeRect(axis.x, PAD.top, 0, high);
  const halo = (text, x, y, style) => {
    // readable above the lines
    const wide = pen.measureText(text).width,
      left = pen.textAlign === 'right' ? x - wide : x;
    Object.assign(pen, { fillStyle: css('--card'), globalAlpha: 0.8 });
    pen.fillRect(left - 2, y - 11, wide + 4, 14);
    Object.assign(pen, { fillStyle: style, globalAlpha: 1 });
    pen.fillText(text, x, y);
  };
  let last = Infinity; // texts nearer than a line stand on each other
  for (const [at, text] of [...axis.marks].sort((a, b) => a[0] - b[0])) {
    if (last - S.toY(at) < 13) continue;
    last = S.toY(at);
    halo(short(text, pen, room), axis.x + 6, last + 4, css('--soft'));
  }
  const kind = axis.kind === 'log' ? ' (log)' : '',
    edge = k && isLast;
  pen.textAlign = edge ? 'right' : 'left';
  halo(
    short(axis.name + kind, pen, edge ? gap + PAD.right - 40 : gap - 16),
    edge ? axis.x + PAD.right - 4 : axis.x - 8,
    PAD.top - 14,
    css('--ink'),
  );
  pen.textAlign = 'left';
  const brush = S.brush.get(k);
  if (!brush) return;
  const [low, top] = brush;
  Object.assign(pen, {
    fillStyle: css('--accent'),
    strokeStyle: css('--accent'),
    lineWidth: 1.5,
    globalAlpha: 0.22,
  });
  pen.fillRect(axis.x - 9, S.toY(top), 18, S.toY(low) - S.toY(top));
  pen.globalAlpha = 1;
  pen.strokeRect(axis.x - 9, S.toY(top), 18, S.toY(low) - S.toY(top));
}
parallel.reset = () => {
  S.axes = axesOf(S.d);
  parallel.box.style.minWidth = S.axes.length * 96 + 'px';
};
parallel.mark = () => {
  $('#parallel').hidden = S.axes.length < 2;
  parallel.draw();
};

const atY = (y) =>
  clamp(1 - (y - PAD.top) / (parallel.box.clientHeight - PAD.top - PAD.bottom), NONE * 2, 1.02);
// The labels of an axis are on its right.
const axisAt = (x) => S.axes.findIndex((axis) => x > axis.x - 16 && x < axis.x + 26);
function lineAt(x, y) {
  // the drawn trial whose line is nearest
  const k = S.axes.findIndex((axis) => axis.x > x);
  if (k < 1) return -1;
  const [a, b] = [S.axes[k - 1], S.axes[k]],
    t = (x - a.x) / (b.x - a.x),
    ease = t * t * (3 - 2 * t);
  let [best, near] = [-1, 9];
  for (const i of lines()) {
    const away = Math.abs(S.toY(a.place(i) * (1 - ease) + b.place(i) * ease) - y);
    if (away <= near) [best, near] = [i, away];
  }
  return best;
}
let drag = null;
parallel.box.addEventListener('pointerdown', (event) => {
  const k = axisAt(event.offsetX);
  if (k < 0 || event.pointerType === 'touch') return; // a finger scrolls
  drag = { k, from: atY(event.offsetY), old: S.brush.has(k) };
  parallel.box.setPointerCapture(event.pointerId);
  event.preventDefault();
});
parallel.box.addEventListener('pointermove', (event) => {
  if (!drag) {
    parallel.box.style.cursor = axisAt(event.offsetX) < 0 ? 'pointer' : 'row-resize';
    return tip(event, axisAt(event.offsetX) < 0 ? lineAt(event.offsetX, event.offsetY) : -1);
  }
  const at = atY(event.offsetY);
  S.brush.set(drag.k, [Math.min(drag.from, at), Math.max(drag.from, at)]);
  parallel.draw();
});
parallel.box.addEventListener('pointerup', (event) => {
  if (drag) {
    const at = atY(event.offsetY),
      { k, from, old } = drag,
      isClick = Math.abs(at - from) < 0.015;
    drag = null;
    if (isClick) S.brush.delete(k);
    else S.brush.set(k, [Math.min(from, at), Math.max(from, at)]);
    if (old || !isClick) return brushed();
    parallel.draw();
  }
  const i = lineAt(event.offsetX, event.offsetY);
  if (i >= 0) select(i);
});
parallel.box.addEventListener('pointerleave', (event) => tip(event, -1));
const brushed = () => {
  filter();
  address.write();
};
$('#unbrush').addEventListener('click', () => {
  S.brush.clear();
  brushed();
});
address.kept.push({
  key: 'brush',
  get: () =>
    wordsOf([...S.brush].map(([k, ends]) => `${rangeText(ends)}_${S.axes[k].name}`)),
  set: (text) => {
    S.brush.clear();
    for (const word of listOf(text)) {
      const [low, high, ...name] = word.split('_'),
        k = S.axes.findIndex((axis) => axis.name === name.join('_')),
        ends = numbersOf(`${low}_${high}`);
      if (k >= 0 && ends) S.brush.set(k, ends);
    }
  },
});

S.blocks.push(parallel);
