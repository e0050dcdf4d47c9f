// Failures, the table of trials, the selected trial; then the start of the page.
const failures = {
  draw() {
    const t = S.d.trials,
      groups = new Map(),
      failed = S.kept.filter((i) => S.d.states[t.state[i]] === 'failed');
    for (const i of failed) {
      // the same reason, whatever its numbers
      const key = t.why[i].replace(/[-+.\d][-+.\de]*/g, '0');
      groups.set(key, [...(groups.get(key) ?? []), i]);
    }
    $('#failures').hidden = !failed.length;
    // Without their share: the headline's includes trials that never began.
    title('failures', trialsOf(failed.length));
    const rows = el('tbody');
    rows.append(
      ...[...groups.values()]
        .sort((a, b) => b.length - a.length)
        .slice(0, 20)
        .map((some) => {
          const row = el('tr'),
            links = el('td'),
            why = t.why[some[0]];
          for (const i of some.slice(0, 8))
            links.append(el('a', `#${t.n[i]}`, { href: `#${S.d.id}/${t.n[i]}` }), ' ');
          row.append(
            el('td', count(some.length), { className: 'num' }),
            links,
            el('td', why, { title: why }),
          );
          return row;
        }),
    );
    morph($('#failures tbody'), rows);
    // What the trials of a kind share is the server's: of all trials, whatever the brush.
    const words = $$(`.sweep[data-sweep="${S.d.id}"] [data-common] li`);
    $('#failures-common').replaceChildren(...words.map((one) => one.cloneNode(true)));
  },
};
// The expression and the metric columns: a dashboard answers both, of the data that it has read
// last; a file has the values of all metrics and no expression.
const asked = {
  where: '',
  metrics: new Set(),
  key: '',
  async ask() {
    const d = S.d,
      query = new URLSearchParams(asked.where ? { where: asked.where } : {});
    for (const name of asked.metrics) query.append('metric', name);
    const key = `${d.id} ${d.at} ${query}`;
    if (key === asked.key) return;
    asked.key = key;
    if (!String(query) || !S.onTable) return asked.take(d, d.table, '');
    const answer = await S.onTable(d, query).catch(() => null);
    if (asked.key !== key || !answer) return; // another one was asked meanwhile
    if (answer.ok) asked.take(d, await answer.json(), '');
    else if (answer.status === 409) asked.take(d, null, (await answer.text()).trim());
  },
  take(d, found, trouble) {
    const box = $('#where');
    $('#where-error').hidden = !trouble;
    $('#where-error').textContent = trouble;
    if (trouble) box.ariaInvalid = 'true';
    else box?.removeAttribute('aria-invalid');
    const before = d.only;
    d.only = asked.where && found ? new Set(found.n) : null;
    d.last = new Map(
      Object.entries(found?.last ?? {}).map(([name, values]) => [
        name,
        new Map(values.map((v, k) => [found.n[k], v])),
      ]),
    );
    if (d !== S.d) return;
    if (before || d.only) filter();
    else table.draw();
  },
  menu() {
    const own = new Set(S.d.measured.map((one) => one.name)),
      names = S.d.metrics.filter((name) => !own.has(name)),
      now = el('div');
    $('#picks').hidden = !names.length || !(S.onTable || S.d.table);
    now.append(
      ...names.map((name) => {
        const label = el('label'),
          box = el('input', '', { type: 'checkbox', value: name });
        box.toggleAttribute('checked', asked.metrics.has(name));
        label.append(box, ` ${name}`);
        return label;
      }),
    );
    morph($('#picks div'), now);
  },
};
// The trials whose boxes are checked, and what the dashboard does to all of them.
const MOST_CHOSEN = 1000, // the address of a click names each
  MOST_OVER = 40; // lines that an overlay tells apart
const choice = {
  of: (d) => (d.chosen ??= new Set()), // numbers
  rows: () => [...new Set(S.kept.map((i) => S.d.lead[i]))], // of all pages
  toggle(rows, isOn) {
    const { lead, trials } = S.d,
      all = new Set(rows),
      numbers = trials.n.filter((_, i) => all.has(lead[i])); // replicates are one row
    for (const n of numbers) choice.of(S.d)[isOn ? 'add' : 'delete'](n);
    S.d.chosen = new Set([...S.d.chosen].slice(0, MOST_CHOSEN));
    choice.draw();
  },
  draw() {
    const box = $('#chosen');
    if (!box) return; // a report
    const d = S.d,
      isChosen = (i) => choice.of(d).has(d.trials.n[i]),
      isOpen = (n) => ['queued', 'running'].includes(d.states[d.trials.state[d.at_of.get(n)]]),
      some = [...choice.of(d)].filter((n) => d.at_of.has(n)).sort((a, b) => a - b),
      rows = choice.rows();
    const whole = new Map(rows.map((lead) => [lead, []])); // whether each replicate is chosen
    d.lead.forEach((lead, i) => whole.get(lead)?.push(isChosen(i)));
    const isWhole = (lead) => whole.get(lead).every(Boolean);
    for (const row of $$('#table tbody tr')) {
      const lead = d.at_of.get(+row.dataset.n);
      $('input', row).checked = isWhole(lead);
      $('input', row).indeterminate = !isWhole(lead) && whole.get(lead).some(Boolean);
    }
    $('#table thead input').checked = rows.length > 0 && rows.every(isWhole);
    box.hidden = !some.length;
    $('#chosen-n').textContent = `${trialsOf(some.length)} chosen`;
    const over = some.slice(0, MOST_OVER);
    $('#over-chosen').textContent =
      over.length < some.length ? `Overlay the first ${over.length}` : `Overlay ${over.length}`;
    $('#over-chosen').onclick = () => {
      overlay.choose(over.map((n) => `${d.id}/${n}`));
      $('#overlay').scrollIntoView(); // it is above the table, out of sight
    };
    const numbers = { cancel: some.filter(isOpen), retry: some.filter((n) => !isOpen(n)) };
    for (const button of $$('[data-verb]', box)) {
      const { verb } = button.dataset,
        words = numbers[verb].join(' ');
      Object.assign(button, {
        hidden: !words,
        title: `hpq ${verb} ${d.id} ${words}`,
        textContent: `${button.value} ${count(numbers[verb].length)} …`,
      });
      button.dataset.words = words;
    }
    $('.command', box).hidden = !numbers.cancel.length;
    $('code', box).textContent = `hpq cancel ${d.id} ${numbers.cancel.join(' ')}`;
  },
};
const boxOf = (text) => el('input', '', { type: 'checkbox', ariaLabel: text, title: text });
const WIDE = 24; // parameters in a row
function lastOf(d, name, i) {
  // the last value of a metric; of replicates, their mean
  const of = d.last?.get(name),
    t = d.trials;
  if (!of) return null;
  if (d.replicates < 2) return of.get(t.n[i]) ?? null;
  const first = (t.group[i] - 1) * d.replicates + 1,
    some = [...Array(d.replicates).keys()].map((k) => of.get(first + k) ?? null),
    known = some.filter((v) => v !== null);
  return known.length ? known.reduce((a, b) => a + b) / known.length : null;
}
const table = {
  sort: 'y',
  isDown: false,
  page: 0,
  columns() {
    const d = S.d,
      t = d.trials,
      on = (name) => (i) => t[name][i];
    return [
      { id: 'n', name: '#', value: on('n') },
      ...['name', 'tags'] // that scripts give their runs
        .filter((name) => t[name].some(Boolean))
        .map((name) => ({ id: name, name, value: on(name) })),
      { id: 'state', name: 'state', value: (i) => d.states[t.state[i]] },
      ...(d.front || t.ok || d.replicates > 1
        ? [
            {
              id: 'rank',
              name: d.front ? 'front' : 'rank',
              value: (i) => d.rank.get(d.lead[i]) ?? null,
              text: (_, i) => (d.front || d.isOut(i) ? standing(i) : (t.rank[i] ?? '')),
            },
          ]
        : []),
      ...d.measured
        .filter((one) => one.name)
        .map((one, k) => ({
          id: 'y' + (k || ''),
          name: one.name,
          max: one.max,
          value: one.value,
          text: (v, i) => measure(v) + (v === null ? '' : (one.words?.(i) ?? '')),
          key: (i) => (d.rank.has(i) ? one.value(i) : null), // trials without a rank come last
        })),
      ...d.metrics
        .filter((name) => asked.metrics.has(name))
        .map((name) => ({ id: `m${name}`, name, value: (i) => lastOf(d, name, i), text: measure })),
      ...d.axes
        .slice(0, WIDE)
        .map((a) => ({ id: `p:${a.name}`, name: a.name, value: (i) => a.values[i] ?? '' })),
      { id: 'step', name: 'step', value: (i) => t.step[i] || '' },
      {
        id: 'took',
        name: 'time',
        value: (i) => t.took[i],
        text: (v) => (v === null ? '' : time(v)),
      },
      { id: 'worker', name: 'worker', value: on('worker') },
      { id: 'why', name: 'why', value: on('why') },
    ];
  },
  order(columns) {
    const column = columns.find((c) => c.id === table.sort) ?? columns[0],
      key = column.key ?? column.value,
      best = table.isFalling(column) ? -1 : 1;
    const isNone = (v) => v === null || v === '';
    const compare = (a, b) =>
      typeof a === 'number' && typeof b === 'number'
        ? a - b
        : String(a).localeCompare(String(b), 'en', { numeric: true });
    // Replicates are one row.
    return [...new Set(S.kept.map((i) => S.d.lead[i]))].sort((a, b) => {
      const v = key(a),
        w = key(b);
      return isNone(v) || isNone(w)
        ? isNone(v) - isNone(w) || a - b
        : best * compare(v, w) || a - b;
    });
  },
  first: () => (S.d.front || S.d.trials.ok ? 'rank' : S.d.metric ? 'y' : 'n'), // sorts at first
  isFalling: ({ max = false }) => max !== table.isDown,
  draw() {
    asked.ask();
    asked.menu();
    const columns = table.columns(),
      size = clamp(Math.floor(1600 / columns.length), 10, 50),
      order = table.order(columns),
      pages = Math.max(1, Math.ceil(order.length / size));
    if (table.to !== undefined && order.includes(table.to))
      table.page = Math.floor(order.indexOf(table.to) / size);
    table.to = undefined;
    table.page = clamp(table.page, 0, pages - 1);
    const from = table.page * size,
      those = order.slice(from, from + size),
      isNumber = (v) => typeof v === 'number';
    title(
      'table',
      `${count(order.length)} of ${count(new Set(S.d.lead).size)}` +
        (S.d.replicates > 1 ? ` settings of ${S.d.replicates} runs each` : '') +
        (pages > 1 ? `, page ${table.page + 1} of ${pages}` : '') +
        (S.d.axes.length > WIDE ? `; the ${WIDE} most important parameters` : ''),
    );
    for (const button of $$('[data-page]')) button.hidden = pages < 2;
    const head = el('tr'),
      top = el('thead'),
      rows = el('tbody');
    for (const c of columns) {
      const cell = el('th'),
        button = el('button', c.name, { title: `Sort by ${c.name}` });
      cell.dataset.key = c.id;
      if (c.id === table.sort) {
        cell.ariaSort = table.isFalling(c) ? 'descending' : 'ascending';
        button.textContent += table.isFalling(c) ? ' ↓' : ' ↑';
      }
      if (those.some((i) => isNumber(c.value(i)))) cell.className = 'num';
      if (c.id === 'n' && $('#chosen')) cell.append(boxOf('Choose all trials that match'), ' ');
      cell.append(button);
      head.append(cell);
    }
    top.append(head);
    rows.append(
      ...those.map((i) => {
        const row = el('tr', '', { tabIndex: 0, ariaCurrent: String(i === S.d.lead[S.sel]) });
        row.dataset.n = S.d.trials.n[i];
        row.append(
          ...columns.map((c) => {
            const v = c.value(i),
              text = c.text ? c.text(v, i) : num(v),
              cell = el('td', text, {
                className: isNumber(v) || (v === null && text) ? 'num' : '',
                title: String(text).length > 30 ? text : '',
              });
            const href = c.id === 'n' && S.link?.(v);
            if (href) cell.replaceChildren(el('a', text, { href }));
            if (c.id === 'n' && $('#chosen')) cell.prepend(boxOf(`Choose trial ${v}`), ' ');
            return cell;
          }),
        );
        return row;
      }),
    );
    morph($('#table thead'), top);
    morph($('#table tbody'), rows);
    choice.draw();
  },
  mark() {
    const lead = S.d.lead[S.sel],
      n = S.d.trials.n[lead];
    if (S.sel >= 0 && !$(`#table tr[data-n="${n}"]`)) {
      table.to = lead;
      return table.draw();
    }
    for (const row of $$('#table tbody tr')) row.ariaCurrent = String(+row.dataset.n === n);
  },
  reset() {
    Object.assign(table, { sort: table.first(), isDown: false, page: 0 });
  },
};
const panel = {
  mark() {
    const box = $('#trial'),
      d = S.d,
      t = d.trials,
      i = S.sel;
    box.hidden = i < 0;
    if (i < 0) return;
    const tools = el('div', '', { className: 'tools' }),
      top = el('div', '', { className: 'title' }),
      list = el('dl', '', { className: 'pairs' }),
      now = el('div');
    const best = d.front ? d.at_of.get(t.by[i]) : d.order[0];
    const text = `${d.id}/${t.n[i]}`,
      isOver = overlay.trials.includes(text),
      over = el('button', isOver ? 'Out of the overlay' : 'Overlay', {
        title: 'Draw the curves of chosen trials over each other',
      });
    over.dataset.key = 'overlay';
    tools.append(over, el('button', 'Close'));
    const rows = [
      ['state', d.states[t.state[i]]],
      ...d.measured.map((one, k) => [one.name, measure(d.front ? t.all[i][k] : t.y[i])]),
      ...(d.replicates > 1
        ? [
            ['seed', t.seed[i]],
            ...d.measured.map((one) => [
              `mean ${one.name}`,
              measure(one.value(d.lead[i])) + one.words(d.lead[i]),
            ]),
          ]
        : []),
      ['result', standing(i)],
      ['why', t.why[i]],
      ...d.axes
        .slice(0, 3 * WIDE)
        .map((a) => [
          a.name,
          a.values[i] === null ? 'none' : num(a.values[i]),
          best !== undefined && a.values[i] !== a.values[best],
        ]),
      ['step', t.step[i] || ''],
      ['time', t.took[i] === null ? '' : time(t.took[i])],
      ['worker', t.worker[i]],
    ];
    for (const [label, text, differs] of rows)
      if (text !== '')
        list.append(
          el('dt', label),
          el(
            'dd',
            text +
              (differs
                ? `  (${d.front ? `#${t.n[best]}` : 'the best'}: ` +
                  (num(d.axes.find((a) => a.name === label)?.values[best]) || 'none') +
                  ')'
                : ''),
          ),
        );
    top.append(el('h2', `Trial #${t.n[i]}`), tools);
    now.append(
      top,
      list,
      S.link?.(t.n[i])
        ? el('a', 'Curves, log and files', { href: S.link(t.n[i]) })
        : el('p', `hpq show ${d.id}/${t.n[i]}`, { className: 'soft' }),
    );
    morph(box, now);
  },
};
const listed = {
  mark() {
    for (const a of $$('nav tbody a'))
      a.closest('tr').ariaCurrent = String(a.hash.slice(1) === S.d.id);
  },
};
const selectRow = ({ target }) => {
  if (target.matches('input')) return;
  const row = target.closest('tr');
  if (row) select(S.d.at_of.get(+row.dataset.n));
};
$('#table tbody').addEventListener('click', selectRow);
$('#table tbody').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') selectRow(event);
});
$('#table thead').addEventListener('click', ({ target }) => {
  const id = target.closest('th')?.dataset.key;
  if (!id || target.matches('input')) return;
  table.isDown = table.sort === id && !table.isDown;
  table.sort = id;
  table.page = 0;
  table.draw();
  address.write();
});
$('#table').addEventListener('change', ({ target }) => {
  if (!target.matches('th input, td input')) return;
  const row = target.closest('tbody tr'),
    rows = row ? [S.d.at_of.get(+row.dataset.n)] : choice.rows();
  choice.toggle(rows, target.checked);
  address.write();
});
$('#unchoose')?.addEventListener('click', () => {
  S.d.chosen.clear();
  choice.draw();
  address.write();
});
for (const kind of ['change', 'search'])
  $('#where')?.addEventListener(kind, ({ target }) => {
    asked.where = target.value.trim();
    address.write();
    asked.ask();
  });
$('#picks').addEventListener('change', ({ target }) => {
  asked.metrics[target.checked ? 'add' : 'delete'](target.value);
  target.toggleAttribute('checked', target.checked);
  address.write();
  asked.ask();
  table.draw();
});
address.kept.push(
  {
    key: 'where',
    isOfAll: true,
    get: () => asked.where,
    set: (text) => {
      const box = $('#where');
      asked.where = box ? text : ''; // a file has no expression
      if (box) box.value = text;
    },
  },
  {
    key: 'columns',
    isOfAll: true,
    get: () => wordsOf([...asked.metrics]),
    set: (text) => {
      asked.metrics = new Set(listOf(text));
    },
  },
  {
    key: 'sort', // after a - the other way
    get: () =>
      table.isDown ? `-${table.sort}` : table.sort === table.first() ? '' : table.sort,
    set: (text) => {
      table.isDown = text.startsWith('-');
      table.sort = text.replace(/^-/, '') || table.first();
    },
  },
  {
    key: 'rows', // the page of the table, from 1
    get: () => (table.page ? String(table.page + 1) : ''),
    set: (text) => {
      table.page = Math.max(0, (Math.floor(Number(text)) || 1) - 1);
    },
  },
  {
    key: 'chosen',
    get: () => [...choice.of(S.d)].join(' '),
    set: (text) => {
      S.d.chosen = new Set(listOf(text).map(Number).slice(0, MOST_CHOSEN));
    },
  },
);
$('#trial').addEventListener('click', ({ target }) => {
  if (!target.matches('button')) return;
  if (target.dataset.key) overlay.toggle(`${S.d.id}/${S.d.trials.n[S.sel]}`);
  else select(S.sel);
});
S.blocks.push(failures, table, panel, listed);

for (const button of $$('[data-page]'))
  button.onclick = () => {
    table.page += +button.dataset.page;
    table.draw();
    address.write();
  };
addEventListener('click', async (event) => {
  if (!event.target.matches('[data-copy]')) return;
  const code = event.target.previousElementSibling,
    old = event.target.textContent;
  try {
    await navigator.clipboard.writeText(code.textContent);
    event.target.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(code);
    event.target.textContent = 'Press Ctrl-C';
  }
  setTimeout(() => {
    event.target.textContent = old;
  }, 1500);
});
addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || $('dialog[open]')) return; // it closes the dialog
  if (S.sel >= 0 && event.target.tagName !== 'CANVAS') select(S.sel);
});
addEventListener('hashchange', follow);
const repaint = () => {
  if (S.d) {
    S.blocks.forEach((b) => b !== table && b.reset?.());
    filter();
  }
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);

const LATE = 2000; // ms until charts are drawn before the first paint
async function loadPlotly() {
  const script = el('script');
  if ($('#plotly')) script.textContent = await inflate($('#plotly'));
  else
    await new Promise((done, fail) => {
      Object.assign(script, { src: '/plotly.js', onload: done, onerror: fail });
      document.head.append(script);
    });
  if ($('#plotly')) {
    document.head.append(script);
    $('#plotly').remove();
  }
}
async function start() {
  ages();
  try {
    S.all = JSON.parse(await inflate($('#data')));
    S.all.forEach(prepare);
    follow();
    if (document.body.dataset.live) poll();
    // The first paint, which a browser of a busy machine may not announce for minutes.
    await new Promise((done) => {
      requestAnimationFrame(() => setTimeout(done));
      setTimeout(done, LATE);
    });
    await loadPlotly();
    refresh('draw');
    refresh('mark');
    document.body.dataset.ready = 'yes';
  } catch (error) {
    for (const box of $$('.plot'))
      if (!box.children.length)
        box.textContent = 'This browser cannot draw the charts; a version of 2023 or later can.';
    throw error;
  }
}
start();
