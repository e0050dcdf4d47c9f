// The page of a trial: curves by plotly, tables of its files, the end of its log.
const isTrain = (c) => /train/i.test(c.name);
const COLORS = ['--accent', '--warn', '--soft', '--ink'];
const panels = new Map(); // by what their curves have in common
const plot = (box) => {
  // once it is on the screen: a trial may have hundreds
  if (!box.isSeen || box.drawn === box.some || !window.Plotly) return;
  const { clientWidth } = box.plot,
    isLog = box.some.every((c) => c.log);
  const lines = box.some.map((c, k) => ({
    type: 'scatter',
    mode: c.x.length < 25 ? 'lines+markers' : 'lines',
    x: c.x,
    y: c.y,
    name: safe(c.name.slice(0, 40)),
    line: { color: css(COLORS[k % 4]), width: 1.8 },
    marker: { size: 4 },
    hovertemplate: '%{y:.4g}',
  }));
  Plotly.react(
    box.plot,
    lines,
    layout(210, {
      width: clientWidth,
      hovermode: 'x',
      margin: { l: 54, r: 8, t: 6, b: 34 },
      yaxis: isLog
        ? { type: 'log', ...decades(box.some.flatMap((c) => c.y)) }
        : { nticks: 6, exponentformat: 'e', ...level(box.some.flatMap((c) => c.y)) },
      xaxis: { nticks: 6, title: { text: 'step', font: { size: 12 }, standoff: 4 } },
    }),
    { displayModeBar: false, responsive: true },
  );
  box.drawn = box.some;
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
function drawCurves(points) {
  const groups = new Map();
  for (const c of points) groups.set(stem(c.name), [...(groups.get(stem(c.name)) ?? []), c]);
  for (const [key, some] of groups) {
    some.sort((a, b) => isTrain(a) - isTrain(b));
    let box = panels.get(key);
    if (!box) {
      box = el('figure');
      box.plot = el('div', '', { className: 'plot' });
      box.append(el('figcaption'), box.plot);
      panels.set(key, box);
      $('#panels').append(box);
      watch.observe(box);
    }
    box.some = some;
    box.firstChild.replaceChildren(
      ...some.map((c, k) => {
        const name = el('span', `${c.name} `, { title: c.name });
        name.style.color = css(COLORS[k % 4]);
        name.append(el('b', num(c.y.at(-1) ?? 'nan')));
        return name;
      }),
    );
    plot(box);
  }
  $('#curves').hidden = !panels.size;
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
$('#log pre').addEventListener('scroll', ({ target }) => {
  isAtEnd = target.scrollTop + target.clientHeight >= target.scrollHeight - 40;
});
S.onPart = (part) => {
  if (part.dataset.points) drawCurves(JSON.parse(part.dataset.points));
  for (const box of $$('[data-table]:empty', part)) watch.observe(box);
  $$('img', part).forEach(sharpen);
  if (part.dataset.captions) label(part);
  if (part.id === 'log' && isAtEnd) $('pre', part).scrollTop = 1e9;
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const box of panels.values()) {
    drawCurves(box.some);
    box.drawn = null;
    plot(box);
  }
});
ages();
for (const part of [...$('#listing').children]) S.onPart(part);
