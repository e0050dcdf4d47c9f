// The best value so far, or the hypervolume of several metrics, over the results as they ended.
function bestOf(d, name) {
  // the server's: how many results there were, and the best of them
  const { best } = d.progress[name];
  return { x: best.map(([n]) => n), y: best.map(([, v]) => v), isStep: true };
}
const progress = {
  draw() {
    const d = S.d,
      found = d.front ? progress.volume(d) : progress.best(d);
    $('#progress').hidden = !found;
    progress.marked = S.sel;
    if (!found) return;
    const { heading, words, ...shown } = found;
    $('#progress h2').firstChild.data = `${heading} `;
    $('#progress-plot').ariaLabel = heading;
    title('progress', words);
    progress.chart ??= new LineChart($('#progress-plot'), {
      onZoom: (view) => {
        looks.change('progress', { x: view?.x, y: view?.y });
        progress.draw();
      },
      onPick: (line) => line.i !== undefined && select(line.i),
    });
    progress.chart.draw({ ...shown, view: looks.of('progress'), height: 260 });
  },
  mark() {
    if (progress.marked !== S.sel) progress.draw();
  },
  volume(d) {
    // of the first N feasible results
    if (!d.volume.length) return null;
    const x = [0, ...d.volume.map(([n]) => n)],
      y = [0, ...d.volume.map(([, share]) => share)],
      name = 'hypervolume';
    return {
      heading: 'Hypervolume over trials',
      words: 'the share of the space between best and worst that the front dominates',
      lines: [{ x, y, isStep: true, color: css('--ink'), width: 2, name }],
      x: { name: 'results', isWhole: true },
      y: { name },
    };
  },
  best(d) {
    const line = bestOf(d, d.metric),
      places = new Map(d.progress[d.metric].n.map((n, k) => [d.leadOf(n), k + 1])),
      kept = S.kept.filter((i) => places.has(i)),
      some = drawn(MANY, kept),
      [{ spread }] = d.measured,
      better = line.y.filter((v, k) => k && v !== line.y[k - 1]).length;
    if (!places.size) return null;
    const dot = (i) => ({ x: [places.get(i)], y: [d.y[i]], i, name: `#${d.trials.n[i]}` });
    const lines = [
      { ...line, color: css('--ink'), width: 1.6, name: 'best so far' },
      ...some.flatMap((i) => [
        ...(spread ? [progress.bar(places.get(i), d.y[i], spread(i))] : []),
        { ...dot(i), color: color(i, 0.85), width: 2, about: () => about(i) },
      ]),
    ];
    const lead = d.lead[S.sel];
    if (lead !== undefined && places.has(lead)) lines.push({ ...dot(lead), color: css('--ink'), width: 7 });
    return {
      heading: 'Best so far',
      words:
        (some.length < places.size ? `${shown(some.length, places.size)}; ` : '') +
        `${count(better)} improvement${better === 1 ? '' : 's'} on the first result`,
      lines,
      x: { name: 'results, in the order of their end', isWhole: true },
      y: { name: d.metric, log: d.log, kept: line.y.slice(-1) },
    };
  },
  bar(x, mean, sd) {
    // the standard deviation of replicates
    return { x: [x, x], y: [mean - sd, mean + sd], color: css('--soft'), width: 1 };
  },
};
S.blocks.push(progress);
