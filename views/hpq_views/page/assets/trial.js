// The page of a trial: curves, tables of its files, the end of its log.
const isTrain = (c) => /train/i.test(c.name);
const COLORS = ['--accent', '--warn', '--soft', '--ink'];
const panels = new Map(); // by what their curves have in common
const plot = (box) => {
  // once it is on the screen: a trial may have hundreds
  if (!box.isSeen || box.drawn === box.some) return;
  const { log, ...view } = looks.of(box.key),
    isLog = log ?? box.some.every((c) => c.log),
    { unit, by } = box.some[0];
  box.chart ??= new LineChart(box.plot, {
    onZoom: (now) => {
      looks.change(box.key, { x: now?.x, y: now?.y });
      replot(box);
    },
  });
  const lines = box.some.map((c, k) => ({
    x: c.x,
    y: c.y,
    color: css(COLORS[k % 4]),
    name: c.name,
  }));
  box.chart.draw({
    lines,
    x: { name: by || 'step', text: unit === undefined ? undefined : time },
    y: { name: unit ?? (box.some.length > 1 ? stem(box.some[0].name) : box.some[0].name), log: isLog },
    view,
    height: 210,
  });
  box.log.ariaPressed = String(isLog);
  box.drawn = box.some;
};
const replot = (box) => {
  box.drawn = null;
  plot(box);
};
const watch = new IntersectionObserver(
  (some) => {
    for (const { target, isIntersecting } of some) {
      target.isSeen = isIntersecting;
      if (!target.dataset.table) plot(target);
      else if (isIntersecting) {
        watch.unobserve(target);
        fill(target);
      }
    }
  },
  { rootMargin: '300px' },
);
function caption({ names, some }) {
  names.replaceChildren(
    ...some.map((c, k) => {
      const name = el('span', `${c.name} `, { title: c.name });
      name.style.color = css(COLORS[k % 4]);
      name.append(el('b', measure(c.last)));
      return name;
    }),
  );
}
const onAxis = (points) =>
  // over the metric that the script defined
  points.map((c) => {
    const by = points.find((one) => one.name === c.by);
    return by ? { ...c, ...over(c, by) } : { ...c, by: '' };
  });
function drawCurves(points, place = '#panels', keyOf = (c) => `${stem(c.name)} by ${c.by}`) {
  const groups = new Map();
  for (const c of points) groups.set(keyOf(c), [...(groups.get(keyOf(c)) ?? []), c]);
  for (const [key, some] of groups) {
    some.sort((a, b) => isTrain(a) - isTrain(b));
    let box = panels.get(key);
    if (!box) {
      box = el('figure');
      box.plot = el('div', '', { className: 'lines' });
      box.log = el('button', 'log', { title: 'Logarithmic or linear axis' });
      box.names = el('span');
      const title = el('figcaption'),
        own = box;
      box.key = key;
      box.log.onclick = () => {
        looks.change(key, { log: own.log.ariaPressed !== 'true', y: undefined });
        replot(own);
      };
      title.append(box.names, box.log);
      box.append(title, box.plot);
      panels.set(key, box);
      $(place).append(box);
      watch.observe(box);
    }
    box.some = some;
    caption(box);
    plot(box);
  }
  $(place).parentNode.hidden = !groups.size;
}
function drawSystem({ x, lines }) {
  // by unit: each has an axis of its own
  const points = lines.map((line) => ({ ...line, x, by: 'time', log: false }));
  drawCurves(points, '#system-panels', (c) => `in ${c.unit}`);
}
function sharpen(img) {
  // a small picture shows its pixels
  const look = () => {
    if (img.naturalWidth <= 64) img.style.imageRendering = 'pixelated';
  };
  if (img.naturalWidth) look();
  else img.addEventListener('load', look);
  return img;
}
function histogram(bins) {
  const most = Math.max(...bins.map((bin) => bin[2])),
    box = el('div', '', { className: 'hist' });
  for (const [from, to, n] of bins) {
    const bar = el('i', '', { title: `${num(from)} to ${num(to)}: ${count(n)}` });
    bar.style.height = `${(100 * n) / most}%`;
    box.append(bar);
  }
  return [box, el('p', `${num(bins[0][0])} to ${num(bins.at(-1)[1])}`, { className: 'soft' })];
}
const COLUMNS = 24,
  ROWS = 100; // of a table
async function fill(box) {
  const say = (text) => box.replaceChildren(el('p', text, { className: 'soft' }));
  const answer = await fetch(box.dataset.table).catch(
      (error) => new Response(error, { status: 504 }),
    ),
    text = await answer.text();
  if (!answer.ok) return say(`cannot be read: ${text.trim()}`);
  try {
    const { columns, data } = JSON.parse(text);
    if (String(columns) === 'from,to,count' && data.length)
      return box.replaceChildren(...histogram(data));
    draw(box, columns, data);
  } catch {
    say('not a table; download it from the list of files');
  }
}
async function label(part) {
  // {"media/…": "…"}
  try {
    const captions = await (await fetch(part.dataset.captions)).json();
    for (const one of $$('figure > a img', part))
      if (captions[one.alt])
        one.closest('figure').lastElementChild.append(el('span', captions[one.alt]));
  } catch {
    /* the pictures stay without */
  }
}
function draw(box, columns, data) {
  const table = el('table'),
    folder = box.dataset.table.replace(/\/file\/.*/, '/file/'),
    addRow = (cells, tag) => {
      const row = el('tr');
      row.append(...cells.slice(0, COLUMNS).map((v) => cellOf(v, tag, folder)));
      table.append(row);
    };
  addRow(columns, 'th');
  for (const cells of data.slice(0, ROWS)) addRow(cells, 'td');
  box.replaceChildren(table);
  if (data.length <= ROWS && columns.length <= COLUMNS) return;
  const text =
    `${count(Math.min(ROWS, data.length))} of ${count(data.length)} rows, ` +
    `${Math.min(COLUMNS, columns.length)} of ${columns.length} columns`;
  box.append(el('p', text, { className: 'soft' }));
}
function cellOf(v, tag, folder) {
  const names = v?._type === 'image-file' ? String(v.path ?? '').split('/') : [''],
    isPicture = !names.some((name) => ['', '.', '..'].includes(name)),
    text = typeof v === 'object' && v ? (isPicture ? v.path : JSON.stringify(v)) : String(num(v)),
    cell = el(tag, text.slice(0, 200), { className: typeof v === 'number' ? 'num' : '' });
  if (!isPicture) return cell;
  const src = folder + names.map(encodeURIComponent).join('/'),
    image = sharpen(el('img', '', { src, alt: v.path, loading: 'lazy' }));
  image.onerror = () => image.replaceWith(`${v.path} (not a file of this trial)`);
  cell.replaceChildren(image);
  return cell;
}
let isAtEnd = true; // of the log
const watchLog = ({ target }) => {
  if (!target.matches?.('#log pre')) return;
  isAtEnd = target.scrollTop + target.clientHeight >= target.scrollHeight - 40;
};
addEventListener('scroll', watchLog, true);
S.onPart = (part) => {
  const { points, system } = part.dataset;
  if (points) drawCurves(onAxis(JSON.parse(points)));
  if (system) drawSystem(JSON.parse(system));
  for (const box of $$('[data-table]:empty', part)) watch.observe(box);
  $$('img', part).forEach(sharpen);
  if (part.dataset.captions) label(part);
  if (part.id === 'log' && isAtEnd) $('pre', part).scrollTop = 1e9;
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const box of panels.values()) {
    caption(box);
    replot(box);
  }
});
ages();
if (!$('#data')) {
  // not in a file, whose sweep's page reads the address
  const take = () => address.take(address.read().words);
  take();
  addEventListener('hashchange', () => {
    take();
    panels.forEach(replot);
  });
}
for (const part of $$('#listing > *')) S.onPart(part);
